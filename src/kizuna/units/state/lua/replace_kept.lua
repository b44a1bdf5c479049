-- Give a value that is kept another one, if it is what is expected.
--
-- KEYS kept      the value
-- ARGV expects   nothing: that there is none; bytes: that it is `expected`
-- ARGV expected  not looked at unless `expects` is bytes
-- ARGV to        the new value
-- ARGV ttl_ms    how long it is kept from now on
-- ARGV attempt   first; or again, when the answer to the first was lost, and it may have been done
--
-- Returns {"replaced"}, {"unexpected", the value that is there, or false}, {"no value", the type of what is there};
-- again also {"done"} if it is the new one already, and {"unknown"} instead of {"unexpected"}: it may have been done,
-- and somebody else have gone on from there

local type_of = redis.call("TYPE", kept).ok
if type_of ~= "string" and type_of ~= "none" then
  return {"no value", type_of}
end

local now = redis.call("GET", kept)
if attempt == "again" and now == to then
  return {"done"}
end
if not ((expects == "nothing" and not now) or (expects == "bytes" and now == expected)) then
  if attempt == "again" then
    return {"unknown"}
  end
  return {"unexpected", now}
end
redis.call("SET", kept, to, "PX", ttl_ms)
return {"replaced"}
