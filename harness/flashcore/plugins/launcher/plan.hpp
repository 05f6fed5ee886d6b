// A plan, as plan.py writes it for this program: words between white space. It is not trusted: every word is checked
// against limits before it reaches the driver, and arguments against the kernels when these are loaded.
#pragma once

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
  enum Content { byte, normal, files };
  std::string name, dtype;
  std::uint64_t bytes = 0;
  Role role = input;
  Content content = byte;
  std::int64_t number = 0;  // the byte that fills it, or the seed of what is drawn
  std::vector<std::string> paths = {};
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
  std::vector<TensorMap> storage;  // aligned as a map must be
  std::size_t size = 0;
  std::vector<Reference> references = {};

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
  std::map<std::string, std::string> cubins;
  std::vector<Tensor> tensors;
  std::vector<Launch> launches;
  const std::filesystem::path folder;
  std::string where;  // the part of it that the driver is busy with

  // Reads and checks the plan, and reads its cubins. Throws Refused.
  explicit Plan(const std::string& path)
      : folder(std::filesystem::path(path).parent_path()), words_(contents(path, kMostText), folder) {
    words_.one_of({"flashcore-plan"});
    words_.integer(1, 1);  // the version
    for (std::int64_t left = words_.integer(1, kMost); left > 0; --left) {
      const std::string name = words_.name();
      cubins[name] = cubin_of(words_.file());
    }
    for (std::int64_t left = words_.integer(0, kMost); left > 0; --left) tensors.push_back(tensor());
    for (std::int64_t left = words_.integer(1, kMost); left > 0; --left) launches.push_back(launch());
    words_.place = "";
    words_.one_of({"end"});
  }

 private:
  Tensor tensor() {
    words_.place = "tensor " + std::to_string(tensors.size());
    Tensor made{words_.name(), words_.name()};
    made.bytes = static_cast<std::uint64_t>(words_.integer(1, kMostTensorBytes - total_));
    total_ += static_cast<std::int64_t>(made.bytes);
    made.role = static_cast<Tensor::Role>(words_.one_of({"input", "output", "inout", "workspace"}));
    made.content = static_cast<Tensor::Content>(words_.one_of({"byte", "normal", "files"}));
    const bool is_drawn = made.dtype == "float16" || made.dtype == "bfloat16" || made.dtype == "float32";
    if (made.content == Tensor::normal && !is_drawn) words_.refuse("byte or files, as " + made.dtype + " is not drawn");
    if (made.content == Tensor::files) {
      for (unsigned left = words_.small(1, 4); left > 0; --left) made.paths.push_back(words_.file());
    } else {
      made.number = words_.integer(0, made.content == Tensor::byte ? 255 : INT64_MAX);
    }
    return made;
  }

  Launch launch() {
    words_.place = "launch " + std::to_string(launches.size());
    const std::string cubin = words_.name();
    if (cubins.count(cubin) == 0) words_.refuse("a cubin of the plan");
    Launch made{cubin, words_.name(), words_.place};
    for (int i = 0; i < 3; ++i) made.grid[i] = words_.small(1, i == 0 ? 0x7fffffff : 65535);
    for (int i = 0; i < 3; ++i) made.block[i] = words_.small(1, i == 2 ? 64 : 1024);
    for (int i = 0; i < 3; ++i) {
      made.cluster[i] = words_.small(1, 16);
      if (made.grid[i] % made.cluster[i] != 0) words_.refuse("a divisor of the grid");
    }
    if (made.threads() > 1024) words_.refuse("a block of at most 1024 threads");
    if (made.blocks() > 16) words_.refuse("a cluster of at most 16 blocks");
    made.shared = words_.small(0, 256 << 10);
    made.programmatic = words_.small(0, 1) == 1;
    made.cooperative = words_.small(0, 1) == 1;
    for (std::int64_t left = words_.integer(0, kMost); left > 0; --left) {
      words_.place = made.place + ", argument " + std::to_string(made.arguments.size());
      made.arguments.push_back(argument());
    }
    return made;
  }

  Argument argument() {
    Argument made;
    made.size = static_cast<std::size_t>(words_.integer(1, kMostParameterBytes));
    made.storage.resize(made.size / sizeof(TensorMap) + 1);
    const std::string digits = words_.name();
    for (std::size_t i = 0; i < made.size; ++i) {
      const char* at = digits.data() + 2 * i;
      const bool is_there = digits.size() == 2 * made.size;
      if (!is_there || std::from_chars(at, at + 2, made.bytes()[i], 16).ptr != at + 2) {
        words_.refuse(std::to_string(2 * made.size) + " hexadecimal digits");
      }
    }
    for (auto left = words_.integer(0, kMost); left > 0; --left) made.references.push_back(reference(made.size));
    return made;
  }

  Reference reference(std::size_t size) {
    Reference made;
    made.is_map = words_.one_of({"address", "map"}) == 1;
    const std::size_t room = made.is_map ? sizeof(TensorMap) : sizeof(Address);
    made.at = static_cast<std::size_t>(words_.integer(0, static_cast<std::int64_t>(size)));
    if (made.at % (made.is_map ? alignof(TensorMap) : room) != 0 || size - made.at < room) {
      words_.refuse("room for " + std::to_string(room) + " aligned bytes");
    }
    made.tensor = static_cast<std::size_t>(words_.integer(0, static_cast<std::int64_t>(tensors.size()) - 1));
    const std::uint64_t bytes = tensors[made.tensor].bytes;
    made.offset = static_cast<std::uint64_t>(words_.integer(0, static_cast<std::int64_t>(bytes) - 1));
    if (!made.is_map) return made;
    static constexpr unsigned kElementBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};  // by CUtensorMapDataType
    made.dtype = words_.small(0, 12);
    made.rank = words_.small(1, 5);
    std::uint64_t end = made.offset + kElementBytes[made.dtype];  // of what the map describes
    for (unsigned i = 0; i < made.rank; ++i) {
      const auto elements = words_.integer(1, std::int64_t{1} << 32), given = words_.integer(1, kMostTensorBytes);
      const std::int64_t stride = i > 0 ? given : kElementBytes[made.dtype];
      made.sizes[i] = static_cast<unsigned long long>(elements);
      if (i > 0) made.strides[i - 1] = static_cast<unsigned long long>(stride);
      made.box[i] = words_.small(1, 256);
      made.steps[i] = words_.small(1, 8);
      std::int64_t extent = 0;
      const bool is_large = __builtin_mul_overflow(elements - 1, stride, &extent) || extent > kMostTensorBytes;
      end += static_cast<std::uint64_t>(is_large ? 0 : extent);
      if (is_large || end > bytes) words_.refuse("a map of what lies in its tensor");
    }
    made.swizzle = words_.small(0, 6);
    made.promotion = words_.small(0, 3);
    made.fill = words_.small(0, 1);
    return made;
  }

  Words words_;
  std::int64_t total_ = 0;
};

}  // namespace flashcore
