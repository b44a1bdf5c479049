-- Claim a request that we may have claimed before: to keep it, because its id is used once more, or because the reply to
-- our claim was lost.
--
-- KEYS claim     token of whoever works on the request, or has
-- ARGV token     who wants it
-- ARGV claim_ms  how long the claim lasts
--
-- Returns "kept" if it was ours, "claimed" if it was nobody's, or "lost" if it is somebody else's

local holder = redis.call("GET", claim)
if holder and holder ~= token then
  return "lost"
end
redis.call("SET", claim, token, "PX", claim_ms)
return holder and "kept" or "claimed"
