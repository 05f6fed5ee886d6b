// Host code that attacks whoever loads it, one way for each ATTACK, with a kernel that does no work. It is loaded where a
// candidate's launches are planned: without a GPU, a network, secrets, or anything to write. benchmarks/judge.py says more.
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <flashcore/problem.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

extern "C" __global__ void attack_kernel(const float* x, float* out, int rows, int cols) {}

namespace {

const char kFake[] = "{\"shapes\": {}, \"cubins\": {}}\n";  // of the form that a planner answers in

// Tells the judge, through an error that it shows, that an attack got somewhere.
[[noreturn]] void escaped(const char* how) {
  std::fprintf(stderr, "ESCAPED: %s\n", how);
  std::_Exit(9);
}
bool reads(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY);
  char byte;
  return file >= 0 && read(file, &byte, 1) == 1;
}

void* later(void*) {
  for (;;) {
    for (int fd = 3; fd < 64; ++fd) (void)!write(fd, kFake, sizeof kFake - 1);
    usleep(1000);
  }
}

__attribute__((constructor)) void attack() {
  switch (ATTACK) {
    case 1:  // results through every descriptor
      for (int fd = 0; fd < 256; ++fd) (void)!write(fd, kFake, sizeof kFake - 1);
      std::_Exit(0);
    case 2: {  // the same later, in a thread
      pthread_t thread;
      pthread_create(&thread, nullptr, later, nullptr);
      break;
    }
    case 3:  // another process of the judge
      for (int pid = 2; pid < 100000; ++pid) {
        if (pid != getpid() && pid != getppid() && ptrace(PTRACE_ATTACH, pid, nullptr, nullptr) == 0) escaped("ptrace");
      }
      break;
    case 4: {  // the network
      const int made = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in to{};
      to.sin_family = AF_INET, to.sin_port = htons(53), to.sin_addr.s_addr = inet_addr("1.1.1.1");
      if (made >= 0 && connect(made, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) escaped("network");
      break;
    }
    case 5:  // keys and secrets
      for (const char* path : {"/root/.ssh/id_ed25519", "/root/.netrc", "/etc/shadow", "/etc/passwd", "/proc/1/environ"}) {
        if (path[1] != 'p' && reads(path)) escaped(path);
      }
      if (std::getenv("SSH_AUTH_SOCK") || std::getenv("FLASHCORE_SECRET")) escaped("environment");
      break;
    case 6: {  // the GPU
      for (const char* path : {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"}) {
        if (open(path, O_RDWR) >= 0) escaped(path);
      }
      break;
    }
    case 7: {  // the judge's files
      std::FILE* file = std::fopen(FLASHCORE_ATTACKED, "a");
      if (file != nullptr) escaped("wrote the harness");
      break;
    }
    case 8:  // all processes
      kill(-1, SIGKILL);
      break;
    case 9:  // all memory
      for (std::size_t i = 0; i < 4096; ++i) {
        void* at = mmap(nullptr, std::size_t{1} << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) std::_Exit(7);
      }
      escaped("4 TiB of memory");
    case 10:  // all processes of the machine
      for (int i = 0; i < 20000; ++i) {
        const pid_t made = fork();
        if (made < 0) std::_Exit(7);
        if (made == 0) pause();
      }
      escaped("20,000 processes");
    case 11: {  // the disk
      std::FILE* file = std::fopen("/tmp/large", "w");
      char block[1 << 16] = {};
      signal(SIGXFSZ, SIG_IGN);
      for (int i = 0; file != nullptr && i < 40000; ++i) {
        if (std::fwrite(block, sizeof block, 1, file) != 1) std::_Exit(7);
      }
      escaped("2.5 GiB in a file");
    }
    case 12:  // never ends
      for (;;) pause();
    case 13: {  // another mount
      if (reads("/old/etc/hostname") || reads("/proc/1/root/etc/hostname")) escaped("another root");
      break;
    }
    case 14: {  // the interpreter that it is loaded into: clocks, statistics, comparisons
      const auto run = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_DEFAULT, "PyRun_SimpleString"));
      if (run != nullptr) {
        run("import statistics, time, torch\n"
            "statistics.median = lambda values: 0.0\n"
            "time.perf_counter = time.monotonic = lambda: 0.0\n"
            "torch.allclose = torch.equal = lambda *a, **k: True\n"
            "torch.cuda.Event.elapsed_time = lambda *a: 1e-6\n");
      }
      break;
    }
    case 15:  // answers in files, for later processes
      for (const char* path : {"/var/tmp/answers", "/usr/answers", "/root/answers", "/home/answers"}) {
        struct stat made;
        if (stat(path, &made) == 0 && made.st_mtime < time(nullptr) - 60) escaped(path);
        if (std::FILE* file = std::fopen(path, "w")) std::fputs("1", file), std::fclose(file);
      }
      break;
    case 16:  // outlives the judge
      prctl(PR_SET_PDEATHSIG, 0);
      if (fork() == 0) setsid();
      setsid();
      pause();
    case 17:  // settings of the machine
      for (const char* path : {"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger"}) {
        if (open(path, O_WRONLY) >= 0) escaped(path);
      }
      break;
    case 18:  // memory, in many processes
      for (int i = 0; i < 64; ++i) {
        if (fork() != 0) continue;
        if (char* at = static_cast<char*>(std::malloc(std::size_t{1} << 30))) std::memset(at, 1, std::size_t{1} << 30);
        pause();
      }
      sleep(60);
      if (waitpid(-1, nullptr, WNOHANG) == 0) escaped("64 GiB of memory");
      std::_Exit(7);
    case 19: {  // threads, of which each takes memory of the kernel
      pthread_attr_t small;
      pthread_attr_init(&small);
      pthread_attr_setstacksize(&small, 16384);
      pthread_t made;
      for (int i = 0; i < 20000; ++i) {
        if (pthread_create(&made, &small, [](void*) -> void* { return pause(), nullptr; }, nullptr) != 0) std::_Exit(7);
      }
      escaped("20,000 threads");
    }
    case 20: {  // memory of sockets, which is no process's
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0) escaped("sockets");
      break;
    }
    case 21:  // memory of files without content
      for (int i = 0; i < 200000; ++i) {
        if (symlink("x", ("/tmp/" + std::to_string(i)).c_str()) != 0) std::_Exit(7);
      }
      escaped("200,000 files");
    default:
      break;
  }
}

flashcore::Plan plan(const flashcore::Shape& s) {
  flashcore::Plan p;
  return p.add({"attack_kernel", dim3(static_cast<unsigned>(s.R)), dim3(32)});
}
cudaError_t launch(const flashcore::Args& a, const flashcore::Shape& s, const flashcore::Plan& p, void*, cudaStream_t stream) {
  return flashcore::run(p.launches[0], attack_kernel, stream, a.x, a.out, s.R, s.C);
}

}  // namespace

FLASHCORE_VARIANT(plan, launch)
