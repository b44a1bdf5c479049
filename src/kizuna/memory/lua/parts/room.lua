-- Whether there is room for anything new. Once a script has written, the server no longer refuses what it writes; and
-- to take back what one row began is to write. So it is asked before the first: this changes nothing, whether there is
-- such a key or not, and is refused by a server that is full.

local no_room = redis.pcall("SETRANGE", relief, 0, "")
no_room = type(no_room) == "table" and no_room.err and no_room or nil
