// cluster_split_keys.cu in bf16: partial results, too, go from block to block as bf16.
//
// The headers of the clusters name their element `half`, whose recorded measurements would be lost by a change of the
// headers. Here that name is bf16's.
//
// From: no design document.

#define ELEMENT_BF16 1
#include <attention/hopper/barrier.cuh>
#include <attention/hopper/cluster.cuh>
#include <attention/hopper/exp2.cuh>
#include <attention/hopper/registers.cuh>
#include <attention/hopper/tensor_copy.cuh>
#include <attention/hopper/tensor_map.cuh>
#include <attention/hopper/wgmma.cuh>
#include <attention/softmax.cuh>
#include <attention/strides.cuh>
#include <flashcore/problem.h>

#include <cuda_bf16.h>

#undef ELEMENT_BF16
#define ELEMENT_BF16 0
#define half __nv_bfloat16
#define half2 __nv_bfloat162
#define __half22float2 __bfloat1622float2

#include "cluster_split_keys.cu"
