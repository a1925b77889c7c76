package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// document has a field of every kind that Unmarshal describes.
type document struct {
	Name string            `json:"name"`
	Size uint64            `json:"size"`
	Sure bool              `json:"sure"`
	Tags map[string]string `json:"tags"`
	List []struct {
		At *int `json:"at"`
	} `json:"list"`
	Odd    odd             `json:"odd"`
	Rest   json.RawMessage `json:"rest"`
	Plain  bool
	Hidden bool `json:"-"`
}

// odd refuses a value and does not say where it stands, as appc's types do.
type odd struct{}

func (*odd) UnmarshalJSON([]byte) error { return errors.New("not\n\tlike this") }

func TestDecodeAcceptsOneStrictDocument(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"all is well", `{"name": "a", "tags": {"k": "1", "K": "2"}, "rest": {"x": 1, "x": 2}}`, ""},
		{"white space after it", "{}\n\n", ""},
		{"null", `null`, ""},
		{"not UTF-8", "{\"name\":\n\"\u00e4\ufffd\xff\"}", "not UTF-8 in line 2"},
		{"the character that replaces others", "{\"name\": \"\ufffd\"}", ""},
		{"nothing", ``, "the document is empty"},
		{"white space", " \n", "the document is empty"},
		{"cut short", `{"name": "a", "na`, "not a JSON document: line 1, column 17: unexpected end of JSON input"},
		{"cut short in a value", `{"name": {"a`, "not a JSON document: line 1, column 12: unexpected end of JSON input"},
		{"a byte order mark", "\ufeff{}", "not a JSON document: begins with a byte order mark"},
		{"a comma in the last line", "{\n\t\"name\": \"ä\", }", "not a JSON document: line 2, column 15: invalid character '}'"},
		{"a line that is missing", "{\n\t\"name\": \"a\"\n\t\"size\": 1\n}", "not a JSON document: line 3, column 2: invalid character '\"' after object key:value pair"},
		{"a value of another type inside", `{"list": [{"at": "x"}]}`, `list[0].at: "x": must be a whole number`},
		{"no object", `[]`, "the document: []: must be an object"},
		{"another document", `{}{}`, "more follows after the JSON object"},
		{"a bracket more", `{}}`, "more follows after the JSON object"},
		{"an unknown key", `{"names": "a"}`, `unknown key "names"`},
		{"an unknown key inside", `{"list": [{"et": 1}]}`, `unknown key "et"`},
		{"a key twice", `{"name": "a", "name": "b"}`, `name: given twice, as "name" and "name"`},
		{"a key twice in another case", `{"name": "a", "NAME": "b"}`, `name: given twice, as "name" and "NAME"`},
		{"a key twice around a string with quotes", `{"name": "\"}, {\"\\", "tags": {"a,": "[{"}, "name": "b"}`, `name: given twice, as "name" and "name"`},
		{"a map's last of many keys twice", `{"tags": {` + many(maxSimpleKeys) + `"k0": "v"}}`, `tags.k0: given twice, as "k0" and "k0"`},
		{"a key twice by Unicode's rules", `{"size": 1, "\u017fize": 2}`, `size: given twice, as "size" and "ſize"`},
		{"an element's field twice", `{"list": [{"at": 1, "At": 2}]}`, `list[0].at: given twice, as "at" and "At"`},
		{"an element's key twice", `{"list": [{"at": 1, "at": 2}]}`, `list[0].at: given twice, as "at" and "at"`},
		{"a map's key twice", `{"tags": {"a b": "1", "a b": "2"}}`, `tags["a b"]: given twice, as "a b" and "a b"`},
		{"an unknown key twice", `{"x": 1, "X": 2}`, `unknown key "x"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var d document
			err := Decode([]byte(test.text), &d)
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
}

// many returns n members of an object, each with a comma.
func many(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `"k%d": "v", `, i)
	}
	return all.String()
}

func TestDecodeErrorsAreTyped(t *testing.T) {
	var d document
	if err := Decode(nil, &d); !errors.Is(err, ErrEmpty) {
		t.Errorf("nothing: %v", err)
	}
	if err := Decode([]byte(`{}x`), &d); !errors.Is(err, ErrTrailing) {
		t.Errorf("more: %v", err)
	}
	var twice *DuplicateKeyError
	want := DuplicateKeyError{Path: "name", First: "name", Second: "Name"}
	if err := Decode([]byte(`{"name": "", "Name": ""}`), &d); !errors.As(err, &twice) || *twice != want {
		t.Errorf("twice: %+v", twice)
	}
}

func TestUnmarshalNamesThePathToTheError(t *testing.T) {
	long := strings.Repeat("y", 1<<16)
	tests := []struct{ name, path, text, want string }{
		{"the document", "", `[1]`, `the document: [1]: must be an object`},
		{"a part", "pod", `[1]`, `pod: [1]: must be an object`},
		{"a field", "pod", `{"name": 1}`, `pod.name: 1: must be a string`},
		{"a field of the document", "", `{"NAME": 1}`, `NAME: 1: must be a string`},
		{"a number", "", `{"size": -1}`, `size: -1: must be a whole number, not negative`},
		{"a truth", "", `{"sure": "yes"}`, `sure: "yes": must be true or false`},
		{"a list", "", `{"list": {}}`, `list: {}: must be a list`},
		{"an element", "", `{"list": [{}, {"at": "x"}]}`, `list[1].at: "x": must be a whole number`},
		{"an odd key of a map", "", `{"tags": {"a b": 1}}`, `tags["a b"]: 1: must be a string`},
		{"a type that blames nothing", "", `{"odd": [1,` + "\n" + ` 2]}`, `odd: [1, 2]: not like this`},
		{"a field without a tag", "", `{"plain": 1}`, `plain: 1: must be true or false`},
		{"a key that is no field's", "", `{"-": 1, "": 1, "hidden": 1, "size": -1}`, `size: -1: must be a whole number, not negative`},
		{"a long value", "", `{"name": ["` + long + `"]}`, `name: ["` + long[:maxShown-2] + `…: must be a string`},
		{"a field twice", "", `{"name": "a", "NAME": "a"}`, `name: given twice, as "name" and "NAME"`},
		{"a field in letters that fold twice", "pod", `{"size": 1, "ſize": 2}`, `pod.size: given twice, as "size" and "ſize"`},
		{"an element's field twice", "pod", `{"list": [{}, {"at": 1, "At": 2}]}`, `pod.list[1].at: given twice, as "at" and "At"`},
		{"cut short", "", `{"name"`, `not a JSON document: line 1, column 7: unexpected end of JSON input`},
		{"garbage", "x", `}`, `not a JSON document: line 1, column 1: invalid character`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var d document
			err := Unmarshal(test.path, []byte(test.text), &d)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
	var d document
	if err := Unmarshal("", []byte(`{"name": "a", "unknown": 1, "UNKNOWN": 2, "tags": {"k": "v", "K": "w"}}`), &d); err != nil || d.Name != "a" || len(d.Tags) != 2 {
		t.Errorf("decoded %+v, %v", d, err)
	}
}

func parse(t *testing.T, text string) Object {
	t.Helper()
	var o Object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAnObjectsKeysMatchInAnyCase(t *testing.T) {
	o := parse(t, `{"Name": "a", "other": [1,  2]}`)
	if err := o.Set("name", "b"); err != nil {
		t.Error(err)
	}
	if want := parse(t, `{"name": "b", "other": [1,  2]}`); !reflect.DeepEqual(o, want) {
		t.Errorf("object is %s", o)
	}
	if got := o.Take("OTHER"); string(got) != `[1,  2]` || len(o) != 1 {
		t.Errorf("took %s of %s", got, o)
	}
	if got := o.Take("other"); got != nil {
		t.Errorf("took %s again", got)
	}
}

func TestAnObjectRefusesWrongKeys(t *testing.T) {
	o := parse(t, `{"a": 1, "A": 2, "b": {}}`)
	_, keyError := o.Key("a")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"Key":            {keyError, `a: given twice, as "A" and "a"`},
		"Set":            {o.Set("a", 1), `a: given twice, as "A" and "a"`},
		"CheckKeys":      {o.CheckKeys(), `a: given twice, as "A" and "a"`},
		"not to be JSON": {o.Set("b", func() {}), `b: json: unsupported type`},
	} {
		if test.err == nil || !strings.HasPrefix(test.err.Error(), test.want) {
			t.Errorf("%s: error %v, want %s", name, test.err, test.want)
		}
	}
	if err := parse(t, `{"a": 1, "b": 2}`).CheckKeys(); err != nil {
		t.Error(err)
	}
}

func TestNothingAndNullAreNull(t *testing.T) {
	for text, want := range map[string]bool{"": true, "null": true, " null\n": true, "0": false, `""`: false, "{}": false} {
		if IsNull(json.RawMessage(text)) != want {
			t.Errorf("%q: want %v", text, want)
		}
	}
}

// FuzzDecode holds Decode and CheckKeys to encoding/json: what they accept it
// accepts with the same result, keys are equal for both or for neither,
// and no error has more than one line. mayRepeat misses nothing that checkKeys refuses.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		`{"name": "a", "size": 1, "list": [{"at": 1}], "tags": {"k": "v"}}`,
		`{"name": "a", "NAME": "b"}`, `{"name": "\"}, {\"\\", "tags": {"a,": "[{"}, "name": "b"}`, `{"list": [{"at": 1, "At": 2}]}`, `{"list": [{"at": 1, "at": 2}]}`, `{"\u017fize": 1, "Size": 2}`, `{"odd": 1}`, `{"x": {`, `[]`, `null`, `{}x`, "",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var strict, loose document
		err := Decode(text, &strict)
		looseErr := Unmarshal("", text, &loose)
		if err == nil && (looseErr != nil || !reflect.DeepEqual(strict, loose)) {
			t.Errorf("%q: decoded to %+v, encoding/json has %+v, %v", text, strict, loose, looseErr)
		}
		if looseErr != nil && (strings.ContainsAny(looseErr.Error(), "\n\r") || !utf8.ValidString(looseErr.Error())) {
			t.Errorf("%q: not one line of text: %q", text, looseErr)
		}
		if json.Unmarshal(text, &loose) == nil && !mayRepeat(text) {
			if err := checkKeys("", text, reflect.TypeOf(loose)); err != nil {
				t.Errorf("%q: mayRepeat has missed %v", text, err)
			}
		}
		var object Object
		if json.Unmarshal(text, &object) != nil {
			return
		}
		twice := false
		for a := range object {
			for b := range object {
				twice = twice || a != b && strings.EqualFold(a, b)
			}
		}
		if got := object.CheckKeys(); (got != nil) != twice {
			t.Errorf("%q: %v, want an error: %v", text, got, twice)
		}
		if twice && err == nil {
			t.Errorf("%q: Decode accepts it", text)
		}
	})
}
