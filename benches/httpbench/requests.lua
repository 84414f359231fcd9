-- wrk script: send each prepared body in turn, as fast as connections allow.
-- Arguments: PATH, and for POST also BODIES FIRST_PASS (see write_records in bodies.py).
-- A body's stamps carry the number of the pass, so that a body is never sent to a server twice.
local concat, format = table.concat, string.format
local MARKER = "@STAMP@"
local records, position, pass, stamp = {}, 0, 0, ""
local plain

local function head(path, length)
  return "POST " .. path .. " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    .. length .. "\r\n\r\n"
end

local function split(body)
  local pieces, start = {}, 1
  while true do
    local first, last = body:find(MARKER, start, true)
    pieces[#pieces + 1] = body:sub(start, (first or 0) - 1)
    if not first then
      return pieces
    end
    start = last + 1
  end
end

function init(args)
  local path, bodies = args[1], args[2]
  if not bodies then
    plain = "GET " .. path .. " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    return
  end
  pass = tonumber(args[3])
  stamp = format("%06x", pass)
  local file = assert(io.open(bodies, "rb"))
  for line in function() return file:read("*l") end do
    local pieces = split(file:read(tonumber(line)))
    local length = #stamp * (#pieces - 1)
    for _, piece in ipairs(pieces) do
      length = length + #piece
    end
    pieces[1] = head(path, length) .. pieces[1]
    records[#records + 1] = pieces
  end
  file:close()
end

function request()
  if plain then
    return plain
  end
  position = position + 1
  if position > #records then
    position, pass = 1, pass + 1
    stamp = format("%06x", pass)
  end
  return concat(records[position], stamp)
end

function done(summary, latency)
  local errors = summary.errors
  io.write(format(
    '\n{"requests":%d,"microseconds":%d,"p50":%.1f,"p99":%.1f,"bad_status":%d,"socket_errors":%d,"timeouts":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.status, errors.connect + errors.read + errors.write, errors.timeout))
end
