import stand_in  # noqa: F401 - makes the native half importable where it is not built
