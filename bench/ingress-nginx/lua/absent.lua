-- A library of a feature that the lab does not use: it loads, and objects of it can be made. Every other call fails.
local absent

local function member(_, name)
  return function()
    if name == "new" then
      return absent
    end
    error("not part of the lab's ingress-nginx: " .. tostring(name))
  end
end

absent = setmetatable({}, { __index = member })
return absent
