// A library that launches the kernels of a plan on given tensors. It needs the CUDA driver and nothing else. launcher.md
// describes plans.
//
//   launcher PLAN   as a program, checks the plan; needs no driver
#include <memory>

#include "launch.hpp"

namespace flashcore {
namespace {

struct Shared {
  Plan plan;
  Driver driver;
};

template <typename Work>
const char* tried(Work work) {
  static std::string message;
  try {
    work();
    return nullptr;
  } catch (const CudaError& error) {
    message = error.what() + (": " + error.name);
  } catch (const std::exception& error) {
    message = error.what();
  }
  return message.c_str();
}

}  // namespace
}  // namespace flashcore

// In a process with a current context: opens a plan, and launches it on tensors at these addresses, in
// the plan's order. Each returns a message if it fails.
extern "C" const char* flashcore_plan_open(const char* path, void** opened) {
  return flashcore::tried([&] {
    auto made = std::make_unique<flashcore::Shared>(flashcore::Shared{flashcore::Plan(path), flashcore::Driver()});
    flashcore::load(made->driver, made->plan);
    *opened = made.release();
  });
}

extern "C" const char* flashcore_plan_launch(void* opened, const flashcore::Address* addresses, void* stream) {
  return flashcore::tried([&] {
    auto& [plan, driver] = *static_cast<flashcore::Shared*>(opened);
    flashcore::launch(driver, plan, {addresses, addresses + plan.tensors.size()}, stream);
  });
}

int main(int count, char** words) {
  using namespace flashcore;
  if (count != 2) std::_Exit(failed(2, "usage", "expected PLAN"));
  std::_Exit(run([&] {
    Plan plan(words[1]);
    say("checked");
  }));
}
