-- Delete keys and tell of each whether it was there.
--
-- ROW KEYS doomed  any key
--
-- Returns 1 or 0 for each row

local deleted = {}
for i = 1, rows do
  local doomed = row(i)
  deleted[i] = redis.call("DEL", doomed)
end
return deleted
