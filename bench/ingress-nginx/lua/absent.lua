-- A library of a feature that the lab does not use: it loads, and every call fails.
return setmetatable({}, {
  __index = function(_, name)
    return function()
      error("not part of the lab's ingress-nginx: " .. tostring(name))
    end
  end,
})
