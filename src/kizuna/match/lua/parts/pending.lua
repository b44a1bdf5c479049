-- Whether somebody is matching a ticket that was taken then; after `pending_s` he has lost it. What was taken in an hour
-- from now, or later, was taken by no clock: so it is to Open Match. Wants `pending_s`.
local time = redis.call("TIME")
local now = tonumber(time[1])
local oldest = now - pending_s

local function is_pending(since)
  since = since and tonumber(since)
  return since and since >= oldest and since <= now + 3600
end
