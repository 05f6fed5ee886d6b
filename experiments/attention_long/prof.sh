# prof.sh NAME B H S: a full profile of the third launch, into $OUT
ncu --clock-control none --set full -k attention_kernel --launch-skip 2 -c 1 -f -o $OUT/$1 python3 prof.py $@ > $OUT/$1.log 2>&1
ncu --import $OUT/$1.ncu-rep --page source --csv > $OUT/$1.csv 2>/dev/null
ncu --import $OUT/$1.ncu-rep --page raw | grep -E "pipe_tensor|inst_executed_pipe|issue_active|gpu__time_duration.sum|stalled.*ratio|registers|xu|lsu_mem_shared|sm__cycles_elapsed.max|lts__t_bytes|dram__bytes" | head -90
