// Typed answers of a file: typed CLASS FILE LIBRARY. A line of stdin is an input: its texts as hexadecimal digits, before them a 1
// where they are words. Each answer is a line of json, its strings as hexadecimal digits (test_typed.py). Of a Writer the line is
// how it listens ("-": not; a number: to so many pieces, 0 to all; "cancel", "throw": at the second; "other": another thread cancels; "score": it is scored), a text, and names and values
// of its settings (test_writers.py).
#include <atomic>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "kerasbert.hpp"

using namespace kerasbert;

static std::string bytes(const std::string &word) {
  std::string made;
  for (std::size_t i = 0; word != "-" && i < word.size(); i += 2) made += char(std::stoi(word.substr(i, 2), nullptr, 16));
  return made;
}

static std::string hex(const std::string &text) {
  static const char digits[] = "0123456789abcdef";
  std::string made = "\"";
  for (unsigned char c : text) made += digits[c >> 4], made += digits[c & 15];
  return made + "\"";
}

static std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

// [...] of what `each` makes of items
template <class Items, class Each>
static std::string list(const Items &items, Each each) {
  std::string made;
  for (const auto &item : items) made += (made.empty() ? "[" : ",") + each(item);
  return made.empty() ? "[]" : made + "]";
}

static std::string label(const Label &l) {
  return "[" + hex(l.name) + "," + number(l.score) + "," + std::to_string(l.id) + (l.chosen ? ",true]" : ",false]");
}

// A span whose offsets are those of its text; of UTF-16 the test sees
struct Shown {
  const std::string &source;
  std::string operator()(const Span &s) const {
    if (source.substr(s.bytes.start, s.bytes.end - s.bytes.start) != s.text) throw std::runtime_error("offsets of another text");
    return "[" + hex(s.text) + "," + hex(s.label) + "," + number(s.score) + "," + std::to_string(s.units.start) + "," +
           std::to_string(s.units.end) + "]";
  }
};

static std::string truncated(bool is) { return is ? ",true]" : ",false]"; }

template <class Kind, class Show>
static int follow(const char *path, const Options &options, Show show) {
  auto runner = Kind::open(path, options);
  if (!runner) return std::cout << "error " << runner.error().message << "\n", 0;
  std::string line, word;
  while (std::getline(std::cin, line)) {
    std::vector<std::string> texts;
    std::istringstream words(line);
    bool are_words = (words >> word, word == "1");
    while (words >> word) texts.push_back(bytes(word));
    std::cout << show(*runner, texts, are_words) << "\n";
  }
  return 0;
}

template <class Answer, class Show>
static std::string shown(const Expected<Answer> &answer, Show show) {
  return answer ? show(*answer) : "error " + answer.error().message;
}

// ---- a Writer ----

static std::vector<int> ids(const std::string &value) { // 1,2
  std::vector<int> made;
  std::istringstream words(value);
  for (std::string word; std::getline(words, word, ',');) made.push_back(std::stoi(word));
  return made;
}

static std::vector<std::vector<int>> lists(const std::string &value) { // 1;2,3
  std::vector<std::vector<int>> made;
  std::istringstream words(value);
  for (std::string word; std::getline(words, word, ';');) made.push_back(ids(word));
  return made;
}

static void set(Settings &s, const std::string &name, const std::string &value) {
  const std::pair<const char *, std::optional<int> Settings::*> wholes[] = {
      {"max_tokens", &Settings::max_tokens}, {"min_new_tokens", &Settings::min_new_tokens}, {"beams", &Settings::beams},
      {"num_return_sequences", &Settings::num_return_sequences}, {"top_k", &Settings::top_k}, {"seed", &Settings::seed},
      {"no_repeat_ngram_size", &Settings::no_repeat_ngram_size}, {"forced_bos_token_id", &Settings::forced_bos_token_id},
      {"forced_eos_token_id", &Settings::forced_eos_token_id}};
  const std::pair<const char *, std::optional<double> Settings::*> numbers[] = {
      {"temperature", &Settings::temperature}, {"top_p", &Settings::top_p}, {"repetition_penalty", &Settings::repetition_penalty},
      {"length_penalty", &Settings::length_penalty}};
  for (auto &[own, place] : wholes)
    if (name == own) s.*place = std::stoi(value);
  for (auto &[own, place] : numbers)
    if (name == own) s.*place = std::stod(value);
  if (name == "suppress_tokens") s.suppress_tokens = ids(value);
  if (name == "begin_suppress_tokens") s.begin_suppress_tokens = ids(value);
  if (name == "bad_words_ids") s.bad_words_ids = lists(value);
  if (name == "early_stopping") s.early_stopping = value;
  if (name == "prefix") s.prefix = bytes(value);
  if (name == "separator") s.separator = bytes(value);
}

static std::string scored(Writer &writer, const std::string &text) {
  auto found = writer.score(text);
  if (!found) return "error " + std::to_string(found.error().status) + " 0 " + found.error().message;
  return "[" + list(found->tokens, [](auto &each) { return hex(each.name); }) + "," + list(found->tokens, [](auto &each) { return number(each.score); }) +
         "," + number(found->score) + "," + number(found->perplexity) + truncated(found->truncated);
}

static std::string written(Writer &writer, const std::string &listens, const std::string &text, const Settings &settings) {
  if (listens == "score") return scored(writer, text);
  std::vector<std::string> pieces;
  Writer::Listener listener = [&](std::string_view piece) {
    pieces.emplace_back(piece);
    if (listens == "cancel" && pieces.size() == 2) writer.cancel();
    if (listens == "throw" && pieces.size() == 2) throw std::runtime_error("of the listener");
    return pieces.size() != std::strtoul(listens.c_str(), nullptr, 10);
  };
  try {
    auto answer = writer.generate(text, settings, listens == "-" ? Writer::Listener() : listener);
    if (!answer) return "error " + std::to_string(answer.error().status) + " " + std::to_string(pieces.size()) + " " + answer.error().message;
    auto sequence = [](auto &each) { return "[" + hex(each.text) + "," + number(each.score) + "]"; };
    return "[" + hex(answer->text) + "," + number(answer->score) + "," + list(answer->sequences, sequence) + "," + list(pieces, hex) +
           truncated(answer->truncated);
  } catch (const std::runtime_error &error) {
    return "thrown " + std::to_string(pieces.size()) + " " + error.what();
  }
}

// A text that another thread cancels, which may come too late for a short one.
static std::string cancelled(Writer &writer, const std::string &text, const Settings &settings) {
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) writer.cancel(), std::this_thread::yield();
  });
  std::string said;
  for (int i = 0; i < 200 && said.rfind("error", 0) != 0; i++) said = written(writer, "0", text, settings);
  done = true, other.join();
  return said;
}

static int write(const char *path, const Options &options) {
  auto writer = Writer::open(path, options);
  if (!writer) return std::cout << "error " << writer.error().message << "\n", 0;
  std::string line, listens, text, name, value;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    Settings settings;
    words >> listens >> text;
    while (words >> name >> value) set(settings, name, value);
    std::cout << (listens == "other" ? cancelled(*writer, bytes(text), settings) : written(*writer, listens, bytes(text), settings)) << "\n";
  }
  return 0;
}

using Texts = const std::vector<std::string> &;

int main(int, char **arguments) {
  const std::string name = arguments[1];
  const char *path = arguments[2];
  Options options;
  options.library = arguments[3], options.threads = 2;
  if (name == "Classifier")
    return follow<Classifier>(path, options, [](Classifier &c, Texts texts, bool) {
      return shown(c.answer(texts[0]), [](auto &a) { return "[" + hex(a.label) + "," + number(a.score) + "," + list(a.labels, label) + truncated(a.truncated); });
    });
  if (name == "Tagger")
    return follow<Tagger>(path, options, [](Tagger &t, Texts texts, bool words) {
      std::string source;
      for (auto &text : texts) source += (&text == &texts[0] ? "" : " ") + text;
      std::vector<std::string_view> views(texts.begin(), texts.end());
      return shown(words ? t.answer(views) : t.answer(texts[0]),
                   [&](auto &a) { return "[" + list(a.words, Shown{source}) + "," + list(a.entities, Shown{source}) + truncated(false); });
    });
  if (name == "QuestionAnswerer")
    return follow<QuestionAnswerer>(path, options, [](QuestionAnswerer &q, Texts texts, bool) {
      return shown(q.answer(texts[0], texts[1]), [&](auto &a) {
        return "[" + Shown{texts[1]}(a.best) + "," + list(a.alternatives, Shown{texts[1]}) + truncated(a.truncated);
      });
    });
  if (name == "Embedder")
    return follow<Embedder>(path, options, [](Embedder &e, Texts texts, bool) {
      return shown(texts.size() > 1 ? e.prompted(texts[0], texts[1]) : e.answer(texts[0]),
                   [](auto &a) { return "[" + list(a.values, number) + "," + number(a.cosine(a)) + truncated(a.truncated); });
    });
  if (name == "Index") { // of FILE.kbindex
    auto embedder = Embedder::open(path, options);
    if (!embedder) return std::cout << "error " << embedder.error().message << "\n", 0;
    auto index = Index::open(std::string(path) + ".kbindex", *embedder);
    if (!index) return std::cout << "error " << index.error().message << "\n", 0;
    return follow<Embedder>(path, options, [&](Embedder &e, Texts texts, bool) {
      auto found = index->nearest(e.answer(texts[0]).value().values, 3).value();
      return list(found, [](auto &h) { return "[" + std::to_string(h.number) + "," + number(h.score) + "," + hex(h.id) + "," + hex(h.text) + "]"; });
    });
  }
  if (name == "Regressor")
    return follow<Regressor>(path, options, [](Regressor &r, Texts texts, bool) {
      return shown(r.answer(texts[0]), [](auto &a) { return "[" + number(a.value) + truncated(a.truncated); });
    });
  if (name == "Chooser")
    return follow<Chooser>(path, options, [](Chooser &c, Texts texts, bool) {
      return shown(c.answer(texts[0], {texts.begin() + 1, texts.end()}), [](auto &a) {
        return "[" + std::to_string(a.index) + "," + number(a.score) + "," + list(a.choices, label) + truncated(a.truncated);
      });
    });
  if (name == "Writer") return write(path, options);
  if (name == "MaskFiller")
    return follow<MaskFiller>(path, options, [](MaskFiller &m, Texts texts, bool) {
      return shown(m.answer(texts[0]), [](auto &a) {
        return "[" + hex(a.text) + "," + list(a.tokens, [](auto &mask) { return list(mask, label); }) + truncated(a.truncated);
      });
    });
  return 2;
}
