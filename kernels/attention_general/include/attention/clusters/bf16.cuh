// The kernels for short sequences in bf16: partial results, too, go from block to block as bf16. Included before, or
// instead of, clusters/launch.cuh and after all other headers.
//
// The clusters' headers name their element `half`; a change of them would make its recorded measurements stale. Here
// that name is bf16's.
#pragma once

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

#include <attention/clusters/launch.cuh>
