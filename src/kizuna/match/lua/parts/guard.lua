-- Whether somebody who picks tickets step by step is in the middle of it: then nothing may be changed now. With a
-- token, the lock must be ours instead. A script is one step, so to find the lock free is as good as to hold it.
local theirs, ours = 0, 0
for _, key in ipairs({lock_0, lock_1, lock_2}) do
  local owner = redis.call("GET", key)
  if owner and owner == token then
    ours = ours + 1
  elseif owner then
    theirs = theirs + 1
  end
end
local has_lock = ours >= 2 or (token == "" and theirs < 2)
local locked = not has_lock or redis.call("EXISTS", plain_lock) == 1
