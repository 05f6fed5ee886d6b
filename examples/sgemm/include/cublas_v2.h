// The headers include it and use nothing of it: a machine without cuBLAS compiles them too.
