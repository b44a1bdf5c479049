-- Which field of an item is where among those that are read: in this order they are returned, without the last two,
-- which are for us alone.

local ID, TYPE, CONTENT, CONTEXT, PRIORITY, CREATED, EXPIRES, METADATA = 1, 2, 3, 4, 5, 6, 7, 8
local VERSION, UPDATED, LIFE, MORE, GENERATION_NUMBER, TOKEN, HELD_UNTIL = 9, 10, 11, 12, 13, 14, 15
