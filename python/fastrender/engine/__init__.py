"""Engines: token ids in, token ids out; a torch one here, and other people's over HTTP."""
