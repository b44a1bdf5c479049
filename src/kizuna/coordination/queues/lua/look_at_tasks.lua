-- Look how far tasks are.
--
-- KEYS running   who runs which task
-- KEYS info_of   what the key of a task begins with
-- KEYS result_of what the key of a result begins with
-- ARGV group     which group
-- ROW ARGV id    the name of the task
--
-- Returns for each row {"done", result}, {state, reason or ""} or {"unknown", ""}

local outcomes = {}
for i = 1, rows do
  local id = row(i)
  local known = redis.pcall("HMGET", info_of .. id, "at", "reason", "group", "state")
  if known[1] and (known[3] or "default") == group then
    local state = known[4] or (redis.call("HEXISTS", running, id) == 1 and "running") or "waiting"
    outcomes[i] = {state, known[2] or ""}
  else
    local result = redis.pcall("GET", result_of .. id)
    if type(result) == "string" then
      outcomes[i] = {"done", result}
    else
      -- Without our fields it is somebody else's entry that was not handed out yet, if it is anything.
      local waits = not known[1] and redis.call("EXISTS", info_of .. id) == 1
      outcomes[i] = {waits and "waiting" or "unknown", ""}
    end
  end
end
return outcomes
