-- A game server says that it lives and still has free places.
--
-- USES acknowledging  when that was last done
-- KEYS body           where the backfill is stored
-- ARGV root           what all keys begin with
-- ARGV id             its id
-- ARGV expires_ms     how long it lives without an acknowledgement
-- ARGV backfill_ms    how long it is stored
--
-- Returns {"acknowledged", what is stored}, {"missing"} or {"expired"}

local stored = redis.call("HEXISTS", all_backfills, id) == 1 and redis.call("GET", body)
if not stored then
  return {"missing"}
end
if has_expired(id) then
  return {"expired"}
end
redis.call("ZADD", backfill_acks, now_ns, id)
redis.call("PEXPIRE", body, backfill_ms)
return {"acknowledged", stored}
