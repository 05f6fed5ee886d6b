// A plan, as plan.py writes it for this program: its values as words between white space, in the order of plan.py's
// fields. It is not trusted: every word is checked against limits before it reaches the driver, and arguments against the
// kernels when these are loaded.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "driver.hpp"

namespace flashcore {

constexpr std::int64_t kMost = 4096, kMostTensorBytes = std::int64_t{1} << 40, kMostParameterBytes = 32764;
constexpr std::size_t kMostText = 1 << 24, kMostCubin = 1 << 28;

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline std::string contents(const std::string& path, std::size_t most) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(path, error);
  const std::size_t size = is_file ? std::filesystem::file_size(path, error) : most + 1;
  std::string text(error || size > most ? 0 : size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (error || size > most || !file.read(text.data(), static_cast<std::streamsize>(size))) {
    throw Refused(path + ": expected a file of at most " + std::to_string(most) + " bytes");
  }
  return text;
}

// A cubin whose sections and segments lie within it: the driver believes its headers.
inline std::string cubin_of(const std::string& path) {
  const std::string image = contents(path, kMostCubin);
  const auto inside = [&](std::size_t at, std::size_t size) {
    if (at > image.size() || size > image.size() - at) throw Refused(path + ": expected a whole 64-bit cubin");
    return at;
  };
  const auto number = [&](std::size_t at, std::size_t bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, image.data() + inside(at, bytes), bytes);
    return value;
  };
  constexpr std::uint64_t kElf = 0x02464C457F, kCuda = 190, kNoBits = 8;
  if (number(0, 5) != kElf || number(18, 2) != kCuda) inside(image.size(), 1);
  const std::size_t count = number(0x3C, 2), sections = inside(number(0x28, 8), 64 * count);
  for (std::size_t at = sections; at < sections + 64 * count; at += 64) {
    if (number(at + 4, 4) != kNoBits) inside(number(at + 24, 8), number(at + 32, 8));
  }
  const std::size_t parts = number(0x38, 2), segments = inside(number(0x20, 8), 56 * parts);
  for (std::size_t at = segments; at < segments + 56 * parts; at += 56) inside(number(at + 8, 8), number(at + 32, 8));
  return image;
}

// Reads words; a refusal tells where, what was expected and what stands there.
class Words {
 public:
  Words(const std::string& text, std::filesystem::path folder) : text_(text), folder_(std::move(folder)) {}

  std::string next() {
    ++count_;
    word_.clear();
    text_ >> word_;
    return word_;
  }
  [[noreturn]] void refuse(const std::string& expected) const {
    std::string actual = word_.empty() ? "the end" : word_.substr(0, 80);
    throw Refused(place + (place.empty() ? "word " : ", word ") + std::to_string(count_) + ": expected " + expected +
                  ", found " + actual);
  }
  std::int64_t integer(std::int64_t least, std::int64_t most) {
    next();
    std::int64_t value = 0;
    const auto read = std::from_chars(word_.data(), word_.data() + word_.size(), value);
    const bool is_whole = read.ec == std::errc() && read.ptr == word_.data() + word_.size();
    if (is_whole && least <= value && value <= most) return value;
    refuse("an integer from " + std::to_string(least) + " to " + std::to_string(most));
  }
  unsigned small(unsigned least, unsigned most) { return static_cast<unsigned>(integer(least, most)); }
  // The index of one of these words.
  int one_of(std::initializer_list<const char*> words) {
    next();
    int index = 0;
    std::string all;
    for (const char* one : words) {
      if (word_ == one) return index;
      all += (index++ == 0 ? "" : ", ") + std::string(one);
    }
    refuse("one of " + all);
  }
  std::string name() { return next().empty() ? (refuse("a name"), word_) : word_; }
  // A file beside the plan: it names no others.
  std::string file() {
    if (name()[0] == '.' || word_.find('/') != std::string::npos) refuse("a file's name in the plan's folder");
    return folder_ / word_;
  }

  std::string place;

 private:
  std::istringstream text_;
  std::filesystem::path folder_;
  std::string word_;
  int count_ = 0;
};

struct Tensor {
  enum Role { input, output, inout, workspace };
  std::string name, dtype;
  std::uint64_t bytes = 0;
  Role role = input;
};

// A tensor's address in an argument, or a map of it with the arguments of cuTensorMapEncodeTiled.
struct Reference {
  std::size_t at = 0, tensor = 0;
  std::uint64_t offset = 0;
  bool is_map = false;
  unsigned dtype = 0, rank = 0, swizzle = 0, promotion = 0, fill = 0, box[5] = {}, steps[5] = {};
  unsigned long long sizes[5] = {}, strides[5] = {};
};

struct Argument {
  std::vector<TensorMap> storage = std::vector<TensorMap>(1);  // aligned as a map must be
  std::size_t size = 0;                                        // to the end of its values
  bool is_struct = false;                                      // may be larger than its values
  std::vector<Reference> references = {};

  void extend(std::size_t bytes) {
    size = std::max(size, bytes);
    storage.resize(size / sizeof(TensorMap) + 1);
  }
  unsigned char* bytes() { return reinterpret_cast<unsigned char*>(storage.data()); }
};

struct Launch {
  std::string cubin, kernel, place;
  unsigned grid[3] = {}, block[3] = {}, cluster[3] = {}, shared = 0;
  bool programmatic = false, cooperative = false;
  std::vector<Argument> arguments = {};
  std::vector<void*> pointers = {};  // to the arguments
  Handle function = nullptr;

  int threads() const { return static_cast<int>(block[0] * block[1] * block[2]); }
  int blocks() const { return static_cast<int>(cluster[0] * cluster[1] * cluster[2]); }
};

class Plan {
 public:
  std::map<std::string, std::string> cubins;  // by file
  std::vector<Tensor> tensors;
  std::vector<Launch> launches;
  const std::filesystem::path folder;

  // Reads and checks the plan, and reads its cubins. Throws Refused.
  explicit Plan(const std::string& path)
      : folder(std::filesystem::path(path).parent_path()), words_(contents(path, kMostText), folder) {
    words_.one_of({"flashcore-plan"});
    words_.integer(1, 1);  // the version
    for (std::int64_t left = words_.integer(0, kMost); left > 0; --left) tensors.push_back(tensor());
    for (std::int64_t left = words_.integer(1, kMost); left > 0; --left) launches.push_back(launch());
    words_.place = "";
    words_.one_of({"end"});
  }

  // The index of a tensor; their number if there is none of that name.
  std::size_t index(const std::string& name) const {
    const auto has_name = [&](const Tensor& one) { return one.name == name; };
    return static_cast<std::size_t>(std::find_if(tensors.begin(), tensors.end(), has_name) - tensors.begin());
  }

 private:
  Tensor tensor() {
    words_.place = "tensor " + std::to_string(tensors.size());
    Tensor made{words_.name(), words_.name()};
    const auto has = [&](const char* bits) { return made.dtype.find(bits) != std::string::npos; };
    std::int64_t bytes = has("64") ? 8 : has("32") ? 4 : has("16") ? 2 : 1;
    for (unsigned left = words_.small(0, 8); left > 0; --left) {
      bytes *= words_.integer(1, (kMostTensorBytes - total_) / bytes);
    }
    total_ += bytes;
    made.bytes = static_cast<std::uint64_t>(bytes);
    made.role = static_cast<Tensor::Role>(words_.one_of({"input", "output", "inout", "workspace"}));
    return made;
  }

  Launch launch() {
    words_.place = "launch " + std::to_string(launches.size());
    const std::filesystem::path cubin = words_.file();
    if (cubins.count(cubin.filename()) == 0) cubins[cubin.filename()] = cubin_of(cubin);
    Launch made{cubin.filename(), words_.name(), words_.place};
    words_.small(3, 3);
    for (int i = 0; i < 3; ++i) made.grid[i] = words_.small(1, i == 0 ? 0x7fffffff : 65535);
    words_.small(3, 3);
    for (int i = 0; i < 3; ++i) made.block[i] = words_.small(1, i == 2 ? 64 : 1024);
    words_.small(3, 3);
    for (int i = 0; i < 3; ++i) {
      made.cluster[i] = words_.small(1, 16);
      if (made.grid[i] % made.cluster[i] != 0) words_.refuse("a divisor of the grid");
    }
    if (made.threads() > 1024) words_.refuse("a block of at most 1024 threads");
    if (made.blocks() > 16) words_.refuse("a cluster of at most 16 blocks");
    made.shared = words_.small(0, 256 << 10);
    made.programmatic = words_.one_of({"False", "True"}) == 1;
    made.cooperative = words_.one_of({"False", "True"}) == 1;
    for (std::int64_t left = words_.integer(0, kMost); left > 0; --left) {
      words_.place = made.place + ", argument " + std::to_string(made.arguments.size());
      made.arguments.push_back(argument());
    }
    return made;
  }

  Argument argument() {
    Argument made;
    const std::int64_t values = words_.integer(1, kMost);
    made.is_struct = values > 1;
    for (std::int64_t left = values; left > 0; --left) {
      const auto at = static_cast<std::size_t>(words_.integer(0, kMostParameterBytes));
      const std::string name = words_.name();
      if (name == "-") {
        bytes(made, at);
      } else {
        made.references.push_back(reference(at, name));
        made.extend(at + (made.references.back().is_map ? sizeof(TensorMap) : sizeof(Address)));
        if (words_.name() != "-") words_.refuse("a tensor or hexadecimal digits, not both");
      }
      if (made.size > kMostParameterBytes) words_.refuse("an argument that is not larger");
    }
    return made;
  }

  // A value without a tensor.
  void bytes(Argument& into, std::size_t at) {
    words_.integer(0, 0);  // the offset
    words_.one_of({"-"});  // the map
    const std::string digits = words_.name();
    const auto refuse = [&] { words_.refuse("a tensor, or an even number of hexadecimal digits"); };
    if (digits.size() % 2 != 0) refuse();
    into.extend(at + digits.size() / 2);
    for (std::size_t i = 0; i < digits.size(); i += 2) {
      const char* digit = digits.data() + i;
      if (std::from_chars(digit, digit + 2, into.bytes()[at + i / 2], 16).ptr != digit + 2) refuse();
    }
  }

  Reference reference(std::size_t at, const std::string& name) {
    Reference made;
    made.at = at;
    made.tensor = index(name);
    if (made.tensor == tensors.size()) words_.refuse("a tensor of the plan");
    const std::uint64_t bytes = tensors[made.tensor].bytes;
    made.offset = static_cast<std::uint64_t>(words_.integer(0, static_cast<std::int64_t>(bytes) - 1));
    // A dash, or the names of CUtensorMapDataType in its order.
    const int dtype = words_.one_of({"-", "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32",
                                     "float64", "bfloat16", "float32_ftz", "tfloat32", "tfloat32_ftz"});
    made.is_map = dtype > 0;
    const std::size_t aligned = made.is_map ? alignof(TensorMap) : sizeof(Address);
    if (at % aligned != 0) words_.refuse("it at a multiple of " + std::to_string(aligned) + " bytes");
    if (made.is_map) map(made, static_cast<unsigned>(dtype - 1), bytes);
    return made;
  }

  void map(Reference& made, unsigned dtype, std::uint64_t bytes) {
    static constexpr unsigned kElementBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    const unsigned element = kElementBytes[made.dtype = dtype];
    const unsigned rank = made.rank = words_.small(1, 5);
    for (unsigned i = 0; i < rank; ++i) {
      made.sizes[i] = static_cast<unsigned long long>(words_.integer(1, std::int64_t{1} << 32));
    }
    words_.small(rank - 1, rank - 1);
    std::uint64_t end = made.offset + element * made.sizes[0];  // of what the map describes
    for (unsigned i = 1; i < rank; ++i) {
      const std::int64_t stride = words_.integer(1, kMostTensorBytes);
      made.strides[i - 1] = static_cast<unsigned long long>(stride);
      std::int64_t extent = 0;
      const auto steps = static_cast<std::int64_t>(made.sizes[i]) - 1;
      const bool is_large = __builtin_mul_overflow(steps, stride, &extent) || extent > kMostTensorBytes;
      end += is_large ? bytes : static_cast<std::uint64_t>(extent);
    }
    if (end > bytes) words_.refuse("a map of what lies in its tensor");
    for (unsigned* each : {made.box, made.steps}) {
      words_.small(rank, rank);
      for (unsigned i = 0; i < rank; ++i) each[i] = words_.small(1, each == made.box ? 256 : 8);
    }
    made.swizzle = static_cast<unsigned>(words_.one_of({"none", "32B", "64B", "128B"}));
    made.promotion = static_cast<unsigned>(words_.one_of({"none", "64B", "128B", "256B"}));
    made.fill = static_cast<unsigned>(words_.one_of({"zero", "nan"}));
  }

  Words words_;
  std::int64_t total_ = 0;
};

}  // namespace flashcore
