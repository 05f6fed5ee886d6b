// Loads and launches a plan, reads commands, and writes events: for programs that run one.
#pragma once

#include <iostream>
#include <memory>

#include "machine.hpp"

namespace flashcore {

inline std::string where;  // the part of a plan, or the command, that the driver is busy with

// Loads the plan's kernels into the current context, and checks the launches against them; the modules by cubin.
inline std::map<std::string, Handle> load(const Driver& driver, Plan& plan) {
  std::map<std::string, Handle> modules;
  for (const auto& [name, image] : plan.cubins) {
    where = "cubin " + name;
    CUDA(cuModuleLoadData, &modules[name], image.data());
  }
  for (Launch& one : plan.launches) {
    where = one.place;
    CUDA(cuModuleGetFunction, &one.function, modules[one.cubin], one.kernel.c_str());
    int threads = 0, shared = 0;
    CUDA(cuFuncGetAttribute, &threads, kMostThreads, one.function);
    const auto refuse = [&](Size expected, const char* what) {
      throw Refused(one.place + ": expected " + std::to_string(expected) + what + ", as " + one.kernel + " has");
    };
    if (one.threads() > threads) refuse(static_cast<Size>(threads), " threads at most");
    Size offset = 0, size = 0, count = 0;
    for (; driver.cuFuncGetParamInfo(one.function, count, &offset, &size) == 0; ++count) {
      if (count >= one.arguments.size()) continue;
      Argument& argument = one.arguments[count];
      const bool fits = argument.is_struct ? argument.size <= size : argument.size == size;
      if (!fits) refuse(size, (" bytes of argument " + std::to_string(count)).c_str());
      argument.extend(size);
      one.pointers.push_back(argument.bytes());
    }
    if (count != one.arguments.size()) refuse(count, " arguments");
    CUDA(cuFuncGetAttribute, &shared, kMostDynamicShared, one.function);  // a kernel's launches share it
    if (static_cast<int>(one.shared) > shared) {
      CUDA(cuFuncSetAttribute, one.function, kMostDynamicShared, static_cast<int>(one.shared));
    }
    if (one.blocks() > 8) CUDA(cuFuncSetAttribute, one.function, kNonPortableCluster, 1);
  }
  return modules;
}

// Enqueues the plan's launches on tensors at these addresses.
inline void launch(const Driver& driver, Plan& plan, const std::vector<Address>& addresses, Handle stream) {
  for (Launch& one : plan.launches) {
    where = one.place;
    for (Argument& argument : one.arguments) {
      for (const Reference& r : argument.references) {
        const Address address = addresses[r.tensor] + r.offset;
        unsigned char* into = argument.bytes() + r.at;
        if (r.is_map) {
          CUDA(cuTensorMapEncodeTiled, reinterpret_cast<TensorMap*>(into), r.dtype, r.rank,
               reinterpret_cast<void*>(address), r.sizes, r.strides, r.box, r.steps, 0, r.swizzle, r.promotion, r.fill);
        } else {
          std::memcpy(into, &address, sizeof address);
        }
      }
    }
    LaunchAttribute attributes[3] = {};
    LaunchConfig config{{}, {}, one.shared, stream, attributes, 0};
    std::copy_n(one.grid, 3, config.grid);
    std::copy_n(one.block, 3, config.block);
    if (one.blocks() > 1) {
      attributes[config.count++] = {kCluster, 0, {one.cluster[0], one.cluster[1], one.cluster[2]}};
    }
    if (one.programmatic) attributes[config.count++] = {kProgrammatic, 0, {1}};
    if (one.cooperative) attributes[config.count++] = {kCooperative, 0, {1}};
    CUDA(cuLaunchKernelEx, &config, one.function, one.pointers.data(), nullptr);
  }
}

inline std::string member(const char* key, const std::string& text) {
  std::string made;
  for (const char c : text) made += c < ' ' || c > '~' || c == '"' || c == '\\' ? '?' : c;
  return std::string(", \"") + key + "\": \"" + made + '"';
}
inline std::string member(const char* key, int number) { return std::string(", \"") + key + "\": " + std::to_string(number); }
inline std::string member(const char* key, const std::vector<double>& numbers) {
  std::string made;
  for (const double x : numbers) made += (made.empty() ? "" : ", ") + std::to_string(x);
  return std::string(", \"") + key + "\": [" + made + "]";
}
inline void say(const char* event, const std::string& members = "") {
  std::cout << "{\"event\": \"" << event << '"' << members << "}" << std::endl;
}

// Tells which GPU it is.
inline void say_device(const Machine& machine, const std::string& more) {
  const Driver& driver = machine.driver;
  int version = 0;
  char name[256] = {};
  unsigned char uuid[16] = {};
  std::string text = "GPU";
  CUDA(cuDriverGetVersion, &version);
  CUDA(cuDeviceGetName, name, sizeof name - 1, 0);
  CUDA(cuDeviceGetUuid, uuid, 0);
  for (int i = 0; i < 16; ++i) {
    text += i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
    for (const int digit : {uuid[i] >> 4, uuid[i] & 15}) text += "0123456789abcdef"[digit];
  }
  const int capability = 10 * machine.attribute(kMajor) + machine.attribute(kMinor);
  say("device", member("name", name) + member("uuid", text) + member("driver", version) +
                    member("capability", capability) + more);
}

inline int failed(int code, const char* kind, const std::string& message) {
  say("error", member("kind", kind) + member("message", message));
  return code;
}

// Has a session carry out the commands of the standard input.
template <typename Session>
void answer(Session& session) {
  for (std::string line; std::getline(std::cin, line);) {
    where = "command " + line.substr(0, 80);
    try {
      session.command(line);
    } catch (const Refused& error) {
      failed(2, "command", error.what());
    }
  }
  say("done");
}

// Works, and says why it cannot; the exit code.
template <typename Work>
int run(Work work) {
  try {
    work();
    return 0;
  } catch (const Refused& error) {
    return failed(2, "plan", error.what());
  } catch (const CudaError& error) {
    return failed(1, "cuda", where + (where.empty() ? "" : ": ") + error.what() + ": " + error.name);
  } catch (const std::exception& error) {
    return failed(4, "machine", error.what());
  }
}

}  // namespace flashcore
