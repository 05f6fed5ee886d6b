// Confines itself, then becomes a command: what sandbox.py runs a candidate's compilers with.
//
//   confine [PATH]... -- COMMAND...
//
// The standard input, a pipe, gets a byte when the command may begin, which has an empty one instead. With PATHs this process makes its
// namespaces itself, in which these are all that there is; without, bubblewrap did. Exit code 125: it could not.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

constexpr int kNamespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET;
// Of each process: CPU seconds, bytes of a file and of memory, files, and, but for root's, the user's threads.
constexpr std::pair<__rlimit_resource_t, rlim_t> kLimits[] = {{RLIMIT_CPU, 600}, {RLIMIT_FSIZE, 1u << 30}, {RLIMIT_AS, 16ull << 30},
                                                              {RLIMIT_NOFILE, 1024}, {RLIMIT_NPROC, 512}, {RLIMIT_CORE, 0}};
constexpr char kRoom[] = "size=2g,nr_inodes=32k,mode=755";
constexpr int kNoRoot =
    SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED;
constexpr long kMountSetAttributes = 442;  // of Linux 5.12
// What no compiler needs, and kernels have had holes in.
constexpr const char* kRefused[] = {
    "mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "fsopen", "fsmount", "move_mount", "open_tree", "ptrace",
    "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key",
    "request_key", "io_uring_setup", "io_uring_enter", "io_uring_register", "kexec_load", "kexec_file_load", "init_module",
    "finit_module", "delete_module", "open_by_handle_at", "name_to_handle_at", "socket", "mknod", "mknodat", "quotactl", "acct",
    "swapon", "reboot", "syslog", "sched_setaffinity", "memfd_create", "memfd_secret", "shmget", "socketpair"};
// SCMP_ACT_ALLOW, SCMP_ACT_ERRNO with EPERM and with ENOSYS, SCMP_CMP_MASKED_EQ; a comparison of an argument.
constexpr std::uint32_t kAllow = 0x7FFF0000, kRefuse = 0x00050001, kUnknown = 0x00050026, kMaskedEqual = 7;
struct Comparison {
  std::uint32_t argument, how;
  std::uint64_t mask, value;
};

void check(const std::string& what, long result) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
}

void write(const std::string& path, const std::string& text) {
  if (!(std::ofstream(path) << text << std::flush)) throw std::runtime_error(path + ": it cannot be written");
}

// This process ends as its child does.
void go_on_in_child() {
  const pid_t child = fork();
  check("fork", child);
  if (child == 0) return;
  int status = 0;
  waitpid(child, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

void make_read_only(const std::string& path, int flags, std::uint64_t more) {
  const std::uint64_t attributes[4] = {MS_RDONLY | MS_NOSUID | more, 0, 0, 0};
  check("mount_setattr " + path, syscall(kMountSetAttributes, AT_FDCWD, path.c_str(), flags, attributes, sizeof attributes));
}

// Leaves this process without network, other processes, users, devices, and files but these, read-only, and an empty /tmp.
void make_namespaces(std::vector<std::string> paths) {
  const std::string user = std::to_string(getuid()), group = std::to_string(getgid());
  check("unshare", unshare(kNamespaces));
  write("/proc/self/setgroups", "deny");
  write("/proc/self/uid_map", user + " " + user + " 1");
  write("/proc/self/gid_map", group + " " + group + " 1");
  go_on_in_child();  // the child is the first process of the namespace, with whose end all end
  check("prctl", prctl(PR_SET_PDEATHSIG, SIGKILL));
  go_on_in_child();  // what the command's process does to itself cannot outlive it
  check("mount /", mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
  check("mount a root", mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, kRoom));
  fs::create_directory("/tmp/old");
  fs::current_path("/tmp");
  check("pivot_root", syscall(SYS_pivot_root, ".", "old"));
  fs::create_directory("/proc"), fs::create_directory("/tmp");
  check("mount /tmp", mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, kRoom));
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/urandom"}) paths.emplace_back(device);
  for (const std::string& path : paths) {
    const bool is_folder = fs::is_directory("/old" + path);
    fs::create_directories(is_folder ? fs::path(path) : fs::path(path).parent_path());
    if (!fs::exists(path)) write(path, "");
    check("mount " + path, mount(("/old" + path).c_str(), path.c_str(), nullptr, MS_BIND | MS_REC, nullptr));
    make_read_only(path, AT_RECURSIVE, path.rfind("/dev", 0) == 0 ? 0 : MS_NODEV);  // a device's mode is the host's
  }
  check("mount /proc", mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr));  // root may write to /proc/sys
  const char* const links[][2] = {{"", "fd"}, {"/0", "stdin"}, {"/1", "stdout"}, {"/2", "stderr"}};
  for (const auto& [number, name] : links) fs::create_symlink(std::string("/proc/self/fd") + number, std::string("/dev/") + name);
  check("umount2", umount2("/old", MNT_DETACH));
  make_read_only("/", 0, MS_NODEV);
  fs::current_path("/tmp");
  check("prctl", prctl(PR_SET_SECUREBITS, kNoRoot, 0, 0, 0));
  for (int capability = 0; capability < 64; ++capability) prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
}

template <typename Type>
Type* function(void* library, const char* name) { return reinterpret_cast<Type*>(dlsym(library, name)); }

// Refuses system calls by libseccomp, which must be there if it is required.
void filter(bool is_required) {
  check("prctl", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  void* library = dlopen("libseccomp.so.2", RTLD_NOW);
  if (library == nullptr && is_required) throw std::runtime_error(dlerror());
  if (library == nullptr) return;
  const auto number = function<int(const char*)>(library, "seccomp_syscall_resolve_name");
  const auto rule = function<int(void*, std::uint32_t, int, unsigned, const Comparison*)>(library, "seccomp_rule_add_array");
  void* rules = function<void*(std::uint32_t)>(library, "seccomp_init")(kAllow);
  const auto add = [&](std::uint32_t action, const char* name, unsigned count = 0, const Comparison* comparison = nullptr) {
    if (rule(rules, action, number(name), count, comparison) != 0) throw std::runtime_error(std::string("seccomp_rule_add ") + name);
  };
  for (const char* name : kRefused) {
    if (number(name) >= 0) add(kRefuse, name);
  }
  const Comparison new_user{0, kMaskedEqual, CLONE_NEWUSER, CLONE_NEWUSER};
  add(kRefuse, "clone", 1, &new_user);
  add(kUnknown, "clone3");  // programs have clone instead
  if (function<int(void*)>(library, "seccomp_load")(rules) != 0) throw std::runtime_error("seccomp_load: the filter was not accepted");
}

// Others are for candidates that are measured meanwhile.
void take_a_quarter_of_the_processors() {
  cpu_set_t sets[8];  // of 1,024 each
  check("sched_getaffinity", sched_getaffinity(0, sizeof sets, sets));
  const int all = CPU_COUNT_S(sizeof sets, sets);
  int left = all - std::max(all / 4, 1);  // to be given up
  for (std::size_t i = 0; left > 0; ++i) {
    left -= CPU_ISSET_S(i, sizeof sets, sets) != 0;
    CPU_CLR_S(i, sizeof sets, sets);
  }
  check("sched_setaffinity", sched_setaffinity(0, sizeof sets, sets));
  check("setpriority", setpriority(PRIO_PROCESS, 0, 19));
}

}  // namespace

int main(int count, char** words) {
  try {
    std::vector<std::string> paths;
    int at = 1;
    for (std::string word; at < count && (word = words[at]) != "--"; ++at) paths.push_back(word);
    check("prctl", prctl(PR_SET_PDEATHSIG, SIGKILL));
    take_a_quarter_of_the_processors();
    std::ofstream("/proc/self/oom_score_adj") << 1000;  // before the judge
    if (!paths.empty()) make_namespaces(paths);
    for (const auto& [resource, most] : kLimits) {
      const rlimit limit{most, most};
      check("setrlimit", setrlimit(resource, &limit));
    }
    filter(!paths.empty());
    check("write", ::write(STDIN_FILENO, "1", 1)), close(STDIN_FILENO);
    check("open", open("/dev/null", O_RDONLY));
    execv(words[at + 1], words + at + 1);
    _exit(127);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cannot confine: %s\n", error.what());
    _exit(125);
  }
}
