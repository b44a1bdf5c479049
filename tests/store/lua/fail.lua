-- Fail in the way that is asked for.
--
-- KEYS text  holds a string
-- ARGV way   how to fail

if way == "error" then
  error("the way is shut")
elseif way == "type" then
  redis.call("LPUSH", text, "a")
elseif way == "nil" then
  local nothing
  return nothing.field
elseif way == "coded" then
  return redis.error_reply("SHUT the way is shut")
end
return way
