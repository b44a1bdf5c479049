-- What a script with rows returns while others are picking tickets.
local function locked_rows()
  local results = {}
  for i = 1, rows do
    results[i] = "locked"
  end
  return results
end
