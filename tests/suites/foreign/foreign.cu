#include <flashcore/problem.h>
#include <flashcore/launcher.h>

#include "library.cuh"

namespace {

using flashcore::Args;
using flashcore::Shape;

void launch(const Args& a, const Shape& s, cudaStream_t stream) {
  const auto* x = static_cast<const float*>(a.x);
  auto* out = static_cast<float*>(a.out);
  KERNEL<<<flashcore::ceil_div(s.N, 128), 128, 16 * s.N / 4096, stream>>>(x, out, a.factor, s.N);
}

cudaError_t launch_all(const Args& a, const Shape& s, void*, cudaStream_t stream) {
  launch(a, s, stream);
  auto* out = static_cast<float*>(a.out);
  if (a.factor == 0.5) lib::none<<<4, 64, 0, stream>>>(out);  // a branch on a number
  int sms = 0, minor = -1;
  if (cudaError_t error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0)) return error;
  if (cudaError_t error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0)) return error;  // 0
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = 2;
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(sms);
  config.blockDim = dim3(32, 2);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  if (cudaError_t error = cudaLaunchKernelEx(&config, lib::none, out)) return error;
  return cudaGetLastError();
}

}  // namespace

FLASHCORE_LAUNCHER(LAUNCHER)
