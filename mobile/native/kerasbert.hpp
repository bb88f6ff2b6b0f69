// Typed answers for C++17, over kerasbert.h and with nothing but the standard library.
//
//     auto classifier = kerasbert::Classifier::open("sst2.tflite");
//     if (!classifier) return puts(classifier.error().message.c_str());
//     auto answer = classifier->answer("a gripping film");
//     if (answer) printf("%s %.3f\n", answer->label.c_str(), answer->score);
//
// A call gives an Expected: a value or an Error. `value()` throws the Error where the compiler has exceptions, and ends the program
// where it has none; nothing else throws but std::bad_alloc. A runner is closed by its destructor. It belongs to one thread at a
// time; `cancel` alone may come from any.
#ifndef KERASBERT_HPP
#define KERASBERT_HPP

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kerasbert.h"

namespace kerasbert {

// Why a call failed: what, received, expected.
class Error : public std::exception {
 public:
  Error(kb_status status = KB_OK, std::string message = {}) : status(status), message(std::move(message)) {}
  const char *what() const noexcept override { return message.c_str(); }

  kb_status status;
  std::string message;
};

inline Error failure(kb_status status, const kb_message &message) {
  return {status, (status == KB_UNSUPPORTED ? "the portable core does not read " : "") + std::string(message.text)};
}

template <class T>
class Expected {
 public:
  Expected(T value) : held(std::move(value)) {}
  Expected(Error error) : held(std::move(error)) {}

  explicit operator bool() const { return held.index() == 0; }
  const Error &error() const { return *std::get_if<Error>(&held); } // where it is no value
  T &operator*() { return *std::get_if<T>(&held); }                 // where it is one
  const T &operator*() const { return *std::get_if<T>(&held); }
  T *operator->() { return std::get_if<T>(&held); }
  const T *operator->() const { return std::get_if<T>(&held); }

  T &value() & {
    if (!*this) fail();
    return **this;
  }
  T value() && {
    if (!*this) fail();
    return std::move(**this);
  }

 private:
  [[noreturn]] void fail() const {
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
    throw error();
#else
    std::fprintf(stderr, "%s\n", error().message.c_str());
    std::abort();
#endif
  }

  std::variant<T, Error> held;
};

// What is 0 or empty is the default of kb_runner_options.
struct Options {
  std::string library{};
  int threads = 0;
  std::size_t rows = 0;
  std::string delegate{};
};

// A label, a choice, or a token for a mask.
struct Label {
  std::string name;
  double score;
  int id;      // of a token; else its place
  bool chosen; // the best; of several labels those above their thresholds
};

// A part of a text: `text.substr(bytes.start, bytes.end - bytes.start)`; `units` are of UTF-16 (QString, std::u16string).
struct Span {
  std::string text;
  std::string label; // of tags, else empty
  double score;
  kb_range codes, bytes, units;
};

// A file of any kind: answers as json. The classes below give them typed. One that was moved from is not to be called.
class Runner {
 public:
  static Expected<Runner> open(const std::string &path, const Options &options = {}) { return opened<Runner>(&path, {}, options, {}); }

  // The same of bytes, which must stay until it is closed.
  static Expected<Runner> open_bytes(std::string_view file, const Options &options = {}) { return opened<Runner>(nullptr, file, options, {}); }

  // Such as "classification".
  std::string kind() const { return kb_model_kind(model()); }

  // Of texts as kb_rows_make takes them.
  Expected<std::string> json(const std::vector<std::string_view> &texts, bool words = false) {
    kb_text json;
    if (Error error; !run(texts, words, &json, &error)) return error;
    return std::string(json.data, json.size);
  }

  const kb_model *model() const { return kb_runner_model(handle.get()); }

  // Ends the answer that another thread waits for with KB_CANCELLED.
  void cancel() { kb_runner_cancel(handle.get()); }

 protected:
  struct Close {
    void operator()(kb_runner *runner) const { kb_runner_close(runner); }
  };

  template <class Kind>
  static Expected<Kind> opened(const std::string *path, std::string_view file, const Options &options, std::initializer_list<const char *> kinds) {
    kb_runner_options settings{options.library.empty() ? nullptr : options.library.c_str(), options.threads, options.rows,
                               options.delegate.empty() ? nullptr : options.delegate.c_str()};
    kb_message message;
    kb_runner *runner;
    kb_status status = path ? kb_runner_open(path->c_str(), &settings, &runner, &message)
                            : kb_runner_open_bytes(file.data(), file.size(), &settings, &runner, &message);
    if (status != KB_OK) return failure(status, message);
    Kind made;
    made.handle.reset(runner);
    std::string expected;
    for (const char *kind : kinds) {
      if (made.kind() == kind) return made;
      expected += (expected.empty() ? "" : " or ") + std::string(kind);
    }
    if (kinds.size() == 0) return made;
    return Error{KB_ARGUMENT, "the file answers with " + made.kind() + ", expected " + expected};
  }

  kb_runner *running() { return handle.get(); }

  // The typed answer, until the next one; NULL where `error` says why there is none.
  const kb_result *result(const std::vector<std::string_view> &texts, bool words, Error *error) {
    kb_text json;
    return run(texts, words, &json, error) ? kb_runner_result(handle.get()) : nullptr;
  }

  // The same of a text after a prompt.
  const kb_result *after(std::string_view prompt, std::string_view text, Error *error) {
    kb_text part{text.data(), text.size()}, json;
    kb_message message;
    kb_status status = kb_runner_prompted(handle.get(), {prompt.data(), prompt.size()}, &part, 1, &json, &message);
    if (status == KB_OK) return kb_runner_result(handle.get());
    *error = failure(status, message);
    return nullptr;
  }

  static std::string string(kb_text text) { return {text.data, text.size}; }

  static std::vector<Label> labels(const kb_result *result) {
    std::vector<Label> made;
    for (std::size_t i = 0; i < result->label_count; i++) {
      const kb_label &from = result->labels[i];
      made.push_back({string(from.name), from.score, from.id, from.chosen != 0});
    }
    return made;
  }

  static std::vector<Span> spans(const kb_span *from, std::size_t count) {
    std::vector<Span> made;
    for (std::size_t i = 0; i < count; i++)
      made.push_back({string(from[i].text), string(from[i].label), from[i].score, from[i].codes, from[i].bytes, from[i].units});
    return made;
  }

 private:
  bool run(const std::vector<std::string_view> &texts, bool words, kb_text *json, Error *error) {
    std::vector<kb_text> parts;
    for (std::string_view text : texts) parts.push_back({text.data(), text.size()});
    kb_message message;
    kb_status status = kb_runner_answer(handle.get(), parts.data(), parts.size(), words, json, &message);
    if (status != KB_OK) *error = failure(status, message);
    return status == KB_OK;
  }

  std::unique_ptr<kb_runner, Close> handle;
};

// What the typed classes share: `Kind::Answer` is made of a kb_result, of texts of `Kind::kinds`.
template <class Kind>
class Typed : public Runner {
 public:
  static Expected<Kind> open(const std::string &path, const Options &options = {}) { return opened<Kind>(&path, {}, options, Kind::kinds); }

  // The same of bytes, which must stay until it is closed.
  static Expected<Kind> open_bytes(std::string_view file, const Options &options = {}) {
    return opened<Kind>(nullptr, file, options, Kind::kinds);
  }

 protected:
  template <class Answer, class Make>
  Expected<Answer> made(const std::vector<std::string_view> &texts, Make make, bool words = false) {
    Error error;
    const kb_result *from = result(texts, words, &error);
    if (from == nullptr) return error;
    return make(from);
  }
};

// A text, or a pair of texts, to labels.
class Classifier : public Typed<Classifier> {
 public:
  static constexpr std::initializer_list<const char *> kinds = {"classification", "multi_label"};
  struct Answer {
    std::string label; // the best
    double score;
    std::vector<Label> labels; // all of them, in the file's order
    bool truncated;            // whether the text was longer than the model reads
  };

  Expected<Answer> answer(std::string_view text) { return made<Answer>({text}, answer_of); }
  Expected<Answer> answer(std::string_view first, std::string_view second) { return made<Answer>({first, second}, answer_of); }

 private:
  static Answer answer_of(const kb_result *from) {
    std::vector<Label> all = labels(from);
    std::size_t best = 0;
    for (std::size_t i = 1; i < all.size(); i++)
      if (all[i].score > all[best].score) best = i;
    return {all[best].name, all[best].score, std::move(all), from->truncated != 0};
  }
};

// A text to a label for every word, and entities.
class Tagger : public Typed<Tagger> {
 public:
  static constexpr std::initializer_list<const char *> kinds = {"tags"};
  struct Answer {
    std::vector<Span> words, entities;
  };

  Expected<Answer> answer(std::string_view text) { return made<Answer>({text}, answer_of); }
  // Offsets are those of the words joined by blanks.
  Expected<Answer> answer(const std::vector<std::string_view> &words) { return made<Answer>(words, answer_of, true); }

 private:
  static Answer answer_of(const kb_result *from) {
    return {spans(from->spans, from->span_count), spans(from->entities, from->entity_count)};
  }
};

// A question and a text of any length to the part of the text that answers it.
class QuestionAnswerer : public Typed<QuestionAnswerer> {
 public:
  static constexpr std::initializer_list<const char *> kinds = {"span"};
  struct Answer {
    Span best; // empty where the text has none
    std::vector<Span> alternatives;
    bool truncated; // whether the question was longer than the model reads
  };

  Expected<Answer> answer(std::string_view question, std::string_view context) { return made<Answer>({question, context}, answer_of); }

 private:
  static Answer answer_of(const kb_result *from) {
    std::vector<Span> all = spans(from->spans, from->span_count);
    Span best = std::move(all.front());
    all.erase(all.begin());
    return {std::move(best), std::move(all), from->truncated != 0};
  }
};

// A text, or a pair of texts, to a vector.
class Embedder : public Typed<Embedder> {
 public:
  static constexpr std::initializer_list<const char *> kinds = {"vector"};
  struct Answer {
    std::vector<float> values;
    bool truncated;

    // Cosine of the angle between two vectors of one model; 0 where one is 0.
    double cosine(const Answer &other) const {
      double product = 0, own = 0, others = 0;
      for (std::size_t i = 0; i < values.size(); i++) {
        product += double(values[i]) * other.values[i];
        own += double(values[i]) * values[i], others += double(other.values[i]) * other.values[i];
      }
      return own * others > 0 ? product / std::sqrt(own * others) : 0;
    }
  };

  Expected<Answer> answer(std::string_view text) { return made<Answer>({text}, answer_of); }
  Expected<Answer> answer(std::string_view first, std::string_view second) { return made<Answer>({first, second}, answer_of); }

  // After another prompt of the file than its default, such as "query"; an empty name: after none.
  Expected<Answer> prompted(std::string_view prompt, std::string_view text) {
    Error error;
    const kb_result *from = after(prompt, text, &error);
    if (from == nullptr) return error;
    return answer_of(from);
  }

 private:
  static Answer answer_of(const kb_result *from) { return {{from->values, from->values + from->value_count}, from->truncated != 0}; }
};

// A text, or a pair of texts, to a number.
class Regressor : public Typed<Regressor> {
 public:
  static constexpr std::initializer_list<const char *> kinds = {"regression"};
  struct Answer {
    double value;
    bool truncated;
  };

  Expected<Answer> answer(std::string_view text) { return made<Answer>({text}, answer_of); }
  Expected<Answer> answer(std::string_view first, std::string_view second) { return made<Answer>({first, second}, answer_of); }

 private:
  static Answer answer_of(const kb_result *from) { return {double(from->values[0]), from->truncated != 0}; }
};

// A text and at least two choices to the one that fits best.
class Chooser : public Typed<Chooser> {
 public:
  static constexpr std::initializer_list<const char *> kinds = {"choice"};
  struct Answer {
    std::size_t index;
    double score;
    std::vector<Label> choices; // in the order that was given
    bool truncated;
  };

  Expected<Answer> answer(std::string_view text, std::vector<std::string_view> choices) {
    choices.insert(choices.begin(), text);
    return made<Answer>(choices, answer_of);
  }

 private:
  static Answer answer_of(const kb_result *from) {
    std::vector<Label> all = labels(from);
    std::size_t best = 0;
    while (!all[best].chosen) best++;
    double score = all[best].score;
    return {best, score, std::move(all), from->truncated != 0};
  }
};

// A text with [MASK] in it to the tokens that may stand there.
class MaskFiller : public Typed<MaskFiller> {
 public:
  static constexpr std::initializer_list<const char *> kinds = {"tokens"};
  struct Answer {
    std::string text;                       // with the best tokens in the place of the masks
    std::vector<std::vector<Label>> tokens; // of each mask, best first
    bool truncated;
  };

  Expected<Answer> answer(std::string_view text) { return made<Answer>({text}, answer_of); }

 private:
  static Answer answer_of(const kb_result *from) {
    std::vector<Label> all = labels(from);
    std::size_t each = from->label_count / from->mask_count;
    Answer made{string(from->text), {}, from->truncated != 0};
    for (std::size_t i = 0; i < all.size(); i += each) made.tokens.emplace_back(all.begin() + long(i), all.begin() + long(i + each));
    return made;
  }
};

// How a text is generated: the options of `kb.predict`, over those of the file where they are given.
struct Settings {
  std::optional<int> max_tokens, min_new_tokens, beams, num_return_sequences, top_k, seed, no_repeat_ngram_size, forced_bos_token_id,
      forced_eos_token_id;
  std::optional<double> temperature, top_p, repetition_penalty, length_penalty;
  std::optional<std::string> prefix, separator;
  std::optional<std::string> early_stopping; // "true", "false" or "never"
  std::optional<std::vector<int>> suppress_tokens, begin_suppress_tokens;
  std::optional<std::vector<std::vector<int>>> bad_words_ids;

  // As kb_runner_generate reads them.
  std::string json() const {
    std::string made;
    put(made, "max_tokens", max_tokens), put(made, "min_new_tokens", min_new_tokens), put(made, "beams", beams);
    put(made, "num_return_sequences", num_return_sequences), put(made, "top_k", top_k), put(made, "seed", seed);
    put(made, "no_repeat_ngram_size", no_repeat_ngram_size), put(made, "forced_bos_token_id", forced_bos_token_id);
    put(made, "forced_eos_token_id", forced_eos_token_id), put(made, "temperature", temperature), put(made, "top_p", top_p);
    put(made, "repetition_penalty", repetition_penalty), put(made, "length_penalty", length_penalty), put(made, "prefix", prefix);
    put(made, "separator", separator), put(made, "suppress_tokens", suppress_tokens);
    put(made, "begin_suppress_tokens", begin_suppress_tokens), put(made, "bad_words_ids", bad_words_ids);
    const bool is_word = early_stopping == "true" || early_stopping == "false";
    if (early_stopping) made += (made.empty() ? "" : ", ") + ("\"early_stopping\": " + (is_word ? *early_stopping : form(*early_stopping)));
    return "{" + made + "}";
  }

 private:
  template <class Value>
  static void put(std::string &made, const char *name, const std::optional<Value> &value) {
    if (value) made += (made.empty() ? "\"" : ", \"") + std::string(name) + "\": " + form(*value);
  }

  static std::string form(int value) { return std::to_string(value); }

  static std::string form(double value) { // of any locale; what is no number is refused as a text
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    for (char &each : text)
      if (each == ',') each = '.';
    return std::isfinite(value) ? text : form(std::string(text));
  }

  static std::string form(const std::string &text) {
    std::string made = "\"";
    for (char each : text) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", unsigned(static_cast<unsigned char>(each)));
      const bool plain = static_cast<unsigned char>(each) >= 32 && each != '"' && each != '\\';
      made += plain ? std::string(1, each) : std::string(escaped);
    }
    return made + "\"";
  }

  template <class Value>
  static std::string form(const std::vector<Value> &values) {
    std::string made;
    for (const Value &each : values) made += (made.empty() ? "" : ", ") + form(each);
    return "[" + made + "]";
  }
};

// A text to the text that is generated from it.
class Writer : public Typed<Writer> {
 public:
  static constexpr std::initializer_list<const char *> kinds = {"generation"};
  struct Text {
    std::string text;
    double score; // the log-probability, by the length penalty that ranked it
  };
  struct Answer {
    std::string text; // the best
    double score;
    std::vector<Text> sequences; // all that were asked for, best first
    bool truncated;              // whether the text was longer than the model reads
  };

  struct Score {
    std::vector<Label> tokens; // all but the first, with their log-probabilities as scores
    double score;              // their sum
    double perplexity;
    bool truncated; // whether the text was longer than the model reads
  };

  // Gets each piece of the text as its tokens come, whole characters; what it throws comes out of `generate`.
  // false ends the text with KB_CANCELLED, as `cancel` of any thread does.
  using Listener = std::function<bool(std::string_view piece)>;

  // listener: not with beams, or several texts: none is known before the end.
  Expected<Answer> generate(std::string_view text, const Settings &settings = {}, const Listener &listener = {}) {
    const std::string json = settings.json();
    Hearing hearing{&listener, nullptr};
    kb_message message;
    kb_text said;
    const kb_status status = kb_runner_generate(running(), {text.data(), text.size()}, {json.data(), json.size()}, listener ? hear : nullptr,
                                                &hearing, &said, &message);
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
    if (hearing.thrown) std::rethrow_exception(hearing.thrown);
#endif
    if (status != KB_OK) return failure(status, message);
    const kb_result *from = kb_runner_result(running());
    Answer made{string(from->text), from->labels->score, {}, from->truncated != 0};
    for (std::size_t i = 0; i < from->label_count; i++) made.sequences.push_back({string(from->labels[i].name), from->labels[i].score});
    return made;
  }

  // How probable a text of at least two tokens is, by a file of a decoder alone (GPT-2).
  Expected<Score> score(std::string_view text) {
    kb_message message;
    kb_text said;
    const kb_status status = kb_runner_score(running(), {text.data(), text.size()}, &said, &message);
    if (status != KB_OK) return failure(status, message);
    const kb_result *from = kb_runner_result(running());
    Score made{labels(from), 0, 0, from->truncated != 0};
    for (const Label &each : made.tokens) made.score += each.score;
    made.perplexity = std::exp(-made.score / double(made.tokens.size()));
    return made;
  }

 private:
  struct Hearing {
    const Listener *listener;
    std::exception_ptr thrown;
  };

  static std::int32_t hear(void *context, kb_text piece) {
    auto *hearing = static_cast<Hearing *>(context);
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
    try {
      return !(*hearing->listener)({piece.data, piece.size});
    } catch (...) { // not through C
      hearing->thrown = std::current_exception();
      return 1;
    }
#else
    return !(*hearing->listener)({piece.data, piece.size});
#endif
  }
};

// Texts that `kerasbert-mobile index` keeps with vectors of an embedder's file. Threads may share it.
class Index {
 public:
  struct Hit {
    std::size_t number; // of the text, from 0
    double score;       // the cosine of the int8 vectors
    std::string id, text;
  };

  static Expected<Index> open(const std::string &path, const Embedder &embedder) {
    kb_message message;
    kb_index *index;
    kb_status status = kb_index_open_file(path.c_str(), embedder.model(), &index, &message);
    if (status != KB_OK) return failure(status, message);
    Index made;
    made.handle.reset(index);
    return made;
  }

  std::size_t size() const { return kb_index_count(handle.get()); }

  // The texts of the largest cosines with a vector, largest first.
  Expected<std::vector<Hit>> nearest(const std::vector<float> &vector, std::size_t top = 5) const {
    std::vector<kb_hit> hits(top < size() ? top : size());
    std::size_t found;
    kb_message message;
    kb_status status = kb_index_nearest(handle.get(), vector.data(), vector.size(), hits.size(), hits.data(), &found, &message);
    if (status != KB_OK) return failure(status, message);
    std::vector<Hit> made;
    for (std::size_t i = 0; i < found; i++)
      made.push_back({hits[i].number, hits[i].score, {hits[i].id.data, hits[i].id.size}, {hits[i].text.data, hits[i].text.size}});
    return made;
  }

 private:
  struct Close {
    void operator()(kb_index *index) const { kb_index_close(index); }
  };
  std::unique_ptr<kb_index, Close> handle;
};

} // namespace kerasbert

#endif
