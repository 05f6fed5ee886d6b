import json,sys
exec(open(sys.argv[1]).read())
names=[]
for _,l in T:
    for n in l:
        if n not in names: names.append(n)
names+=globals().get("EXTRA",{}).get("also",[])
json.dump({"check":names,"time":T,**globals().get("EXTRA",{})},open(sys.argv[2],"w"))
print(" ".join(names))
