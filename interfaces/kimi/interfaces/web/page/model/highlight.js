// Colours for code: comments, strings, numbers, keywords, names of functions and types, by a few families of languages.

const words = (text) => new Set(text.split(" "));
const C_LIKE = { line: ["//"], blocks: [["/*", "*/"]], quotes: "\"'" };
const PYTHON = words("and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield None True False self");
const SCRIPT = words("abstract as async await break case catch class const continue declare default delete do else enum export extends finally for from function get if implements import in instanceof interface keyof let namespace new null of private protected public readonly return satisfies set static super switch this throw true false try type typeof undefined var void while yield");
const C_WORDS = words("alignas auto bool break case catch char class const constexpr continue default delete do double else enum explicit export extern false final float for friend goto if inline int long mutable namespace new noexcept nullptr operator override private protected public register return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void volatile while NULL include define ifdef ifndef endif");
const JAVA = words("abstract as assert async await base bool boolean break by byte case catch char class const continue data decimal default delegate do double else enum event explicit extends extern false final finally fixed float for foreach fun goto if implements import in init instanceof int interface internal is let lock long namespace native new null object open operator out override package params private protected public readonly record ref return sealed short static string struct super suspend switch synchronized this throw throws true try typeof using val var virtual void volatile when where while yield");
const GO = words("break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var nil true false iota string int bool byte error any");
const RUST = words("as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while");
const SHELL = words("if then else elif fi for while until do done case esac in function return local export readonly set unset shift exit source alias echo cd eval exec trap sudo");
const SQL = words("select from where and or not in is null insert into values update set delete create table index view drop alter add column primary key foreign references unique join left right inner outer full on as group by order having limit offset union all distinct case when then else end exists between like asc desc begin commit rollback with returning default constraint if");
const RUBY = words("alias and begin break case class def defined do else elsif end ensure extend false for if in include module next nil not or puts raise redo require rescue retry return self super then true undef unless until when while yield");
const VALUES = words("true false null yes no on off none None True False inf nan");

const LANGUAGES = {
  python: { line: ["#"], blocks: [['"""', '"""'], ["'''", "'''"]], quotes: "\"'", words: PYTHON },
  javascript: { ...C_LIKE, blocks: [["/*", "*/"], ["`", "`"]], words: SCRIPT },
  c: { ...C_LIKE, words: C_WORDS },
  java: { ...C_LIKE, words: JAVA },
  go: { ...C_LIKE, blocks: [["/*", "*/"], ["`", "`"]], words: GO },
  rust: { line: ["//"], blocks: [["/*", "*/"]], quotes: '"', words: RUST },
  css: { line: [], blocks: [["/*", "*/"]], quotes: "\"'", words: words("important from to and not media supports import"), keys: true },
  shell: { line: ["#"], blocks: [], quotes: "\"'", words: SHELL },
  sql: { line: ["--"], blocks: [["/*", "*/"]], quotes: "'", words: SQL, anyCase: true },
  ruby: { line: ["#"], blocks: [], quotes: "\"'", words: RUBY },
  json: { line: ["//"], blocks: [["/*", "*/"]], quotes: '"', words: VALUES, keys: true },
  yaml: { line: ["#"], blocks: [], quotes: "\"'", words: VALUES, keys: true },
  toml: { line: ["#"], blocks: [['"""', '"""'], ["'''", "'''"]], quotes: "\"'", words: VALUES, keys: true },
  markup: { line: [], blocks: [["<!--", "-->"]], quotes: "\"'", words: new Set(), tags: true },
};

const NAMES = {
  py: "python", python3: "python", js: "javascript", jsx: "javascript", ts: "javascript", tsx: "javascript", mjs: "javascript",
  typescript: "javascript", cpp: "c", "c++": "c", cc: "c", h: "c", hpp: "c", cs: "java", csharp: "java", kotlin: "java",
  kt: "java", scala: "java", swift: "java", dart: "java", php: "java", golang: "go", rs: "rust", scss: "css", less: "css",
  sh: "shell", bash: "shell", zsh: "shell", console: "shell", dockerfile: "shell", makefile: "shell", powershell: "shell",
  rb: "ruby", jsonc: "json", jsonl: "json", yml: "yaml", ini: "toml", cfg: "toml", html: "markup", xml: "markup",
  svg: "markup", vue: "markup", svelte: "markup",
};
const LONGEST = 40000;
const TOKEN = /[A-Za-z_$\u00c0-\uffef][\w$\u00c0-\uffef]*|0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?|\s+|[^]/y;

/** Return the language of an info string or a file name, or null when it is none that has colours. */
export function findLanguage(info) {
  const word = info.trim().split(/[\s,{]/, 1)[0].toLowerCase();
  const name = word.includes(".") ? word.slice(word.lastIndexOf(".") + 1) : word.slice(word.lastIndexOf("/") + 1);
  const found = NAMES[name] ?? name;
  return Object.hasOwn(LANGUAGES, found) || found === "diff" ? found : null;
}

/** Return the code as pairs of a class (one letter, or "") and a text. */
export function highlight(code, language) {
  if (language === "diff" || language === "patch") return code.split(/(?<=\n)/).map((line) => [diffClass(line), line]);
  if (!language || code.length > LONGEST) return [["", code]];
  const rules = LANGUAGES[language];
  const tokens = [];
  let at = 0;
  while (at < code.length) {
    const [kind, end] = readToken(code, at, rules);
    const last = tokens.at(-1);
    const text = code.slice(at, end);
    if (last && last[0] === kind) last[1] += text;
    else tokens.push([kind, text]);
    at = end;
  }
  return tokens;
}

function diffClass(line) {
  if (line.startsWith("@@")) return "k";
  if (line.startsWith("+")) return "p";
  return line.startsWith("-") ? "m" : "";
}

function readToken(code, at, rules) {
  const c = code[at];
  for (const [open, close] of rules.blocks) {
    if (c === open[0] && code.startsWith(open, at)) {
      const end = code.indexOf(close, at + open.length);
      return [/^[/<]/.test(open) ? "c" : "s", end < 0 ? code.length : end + close.length];
    }
  }
  for (const mark of rules.line) {
    if (c === mark[0] && code.startsWith(mark, at) && isComment(code, at, mark)) return ["c", findEnd(code, at)];
  }
  if (rules.quotes.includes(c)) return readString(code, at, rules);
  TOKEN.lastIndex = at;
  const text = TOKEN.exec(code)[0];
  return [classify(text, code, at, rules), at + text.length];
}

function isComment(code, at, mark) {
  return mark !== "#" || at === 0 || /[\s;({[,]/.test(code[at - 1]);
}

function findEnd(code, at) {
  const end = code.indexOf("\n", at);
  return end < 0 ? code.length : end;
}

function readString(code, at, rules) {
  let end = at + 1;
  while (end < code.length && code[end] !== code[at] && code[end] !== "\n") end += code[end] === "\\" ? 2 : 1;
  end = Math.min(code[end] === code[at] ? end + 1 : end, code.length);
  return [rules.keys && /^\s{0,8}:/.test(code.slice(end, end + 9)) ? "t" : "s", end];
}

function classify(text, code, at, rules) {
  if (/^\d/.test(text)) return "n";
  if (!/^[A-Za-z_$\u00c0-\uffef]/.test(text)) return "";
  const next = code[at + text.length];
  if (rules.tags) return code[at - 1] === "<" || code[at - 1] === "/" ? "k" : next === "=" ? "t" : "";
  if (rules.words.has(rules.anyCase ? text.toLowerCase() : text)) return "k";
  if (rules.keys && (next === ":" || /^\s{0,8}=/.test(code.slice(at + text.length, at + text.length + 9)))) return "t";
  if (next === "(") return "f";
  return /^[A-Z][a-z]/.test(text) && !rules.keys ? "t" : "";
}
