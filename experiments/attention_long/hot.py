"""hot.py FILE.csv [LEAST]: the sampled instructions of a profile's source page, with their stall reasons."""
import csv,sys
rows=list(csv.reader(open(sys.argv[1])))
h=next(i for i,r in enumerate(rows) if "Source" in r); head=rows[h]; rows=rows[h+1:]
i0=head.index("stall_barrier"); i1=head.index("stall_wait")
least=int(sys.argv[2]) if len(sys.argv)>2 else 0
num=lambda x:int(float(x.replace(",",""))) if x else 0
tot=sum(num(r[2]) for r in rows)
agg={}
for k,r in enumerate(rows):
    n=num(r[2])
    for j in range(i0,i1+1):
        if num(r[j]): agg[head[j]]=agg.get(head[j],0)+num(r[j])
print("total",tot,{k:round(v/tot,3) for k,v in sorted(agg.items(),key=lambda x:-x[1])})
mx=max(num(r[5]) for r in rows)
exe=sum(num(r[5]) for r in rows)
print("executed",exe)
for k,r in enumerate(rows):
    n=num(r[2])
    if n*1000>=least*tot/1 and num(r[5])>mx/8 or "HGMMA" in r[1] or "WARPGROUP" in r[1] or "BAR" in r[1] or "SYNCS" in r[1]:
        st={head[j][6:]:num(r[j]) for j in range(i0,i1+1) if num(r[j])*5>n and n*200>tot}
        print(k,n,r[5],r[1][:95],st)
