-- Take the lock if it is free, and number the taking so that late writers can be refused.
--
-- KEYS holder    token of the current holder; expires with the lease
-- KEYS fence     last fencing number handed out
-- ARGV token     who wants the lock
-- ARGV lease_ms  how long the lease lasts
--
-- Returns {"taken", fencing number} or {"held", ms until the lease ends}

if redis.call("SET", holder, token, "NX", "PX", lease_ms) then
  return {"taken", redis.call("INCR", fence)}
end
return {"held", redis.call("PTTL", holder)}
