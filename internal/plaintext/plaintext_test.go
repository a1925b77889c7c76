package plaintext

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// A text is one line, whose characters a terminal shows and does not obey.
func TestLineEscapesControlCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"":                  "",
		`import "a b": ü\x`: `import "a b": ü\x`,
		"no\nway":           "no; way",
		"DENIED: \x1b[31m\r\t\u202e\x7f\u009b\xff": `DENIED: \x1b[31m\r\t\u202e\x7f\u009b\xff`,
		"\ufffd": "\ufffd",
	} {
		if got := Line(text); got != want {
			t.Errorf("Line(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestJSONMeansTheSameWithoutControlCharacters(t *testing.T) {
	for document, want := range map[string]string{
		"{\n  \"a\": [1]\n}\n":                 "{\n  \"a\": [1]\n}\n",
		`"é☃𝄞 \u001b"`:                         `"é☃𝄞 \u001b"`,
		"\"\x7f\u009b\u202e\u2028\U000e0001\"": `"\u007f\u009b\u202e\u2028\udb40\udc01"`,
		"\"\xff\x9b\"":                         `"\ufffd\ufffd"`,
	} {
		got := JSON([]byte(document))
		var before, after any
		if err := json.Unmarshal([]byte(document), &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &after); err != nil || string(got) != want || !reflect.DeepEqual(before, after) {
			t.Errorf("JSON(%q) = %q, %v, want %q", document, got, err, want)
		}
	}
}

func TestWriterEscapesControlCharactersHoweverTheyAreCut(t *testing.T) {
	text := "a\tb\n\x1b[31mé☃𝄞\r\x00\x7f\u009b\x9b\xff\xf0\x9f\x98"
	want := "a\tb\n" + `\x1b[31mé☃𝄞\x0d\x00\x7f\xc2\x9b\x9b\xff\xf0\x9f\x98`
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		w := NewWriter(&out)
		for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			part := rest[:min(size, len(rest))]
			if n, err := w.Write(part); n != len(part) || err != nil {
				t.Fatalf("Write returns %d, %v", n, err)
			}
		}
		if err := w.Flush(); err != nil || out.String() != want {
			t.Errorf("in parts of %d bytes: %q, %v, want %q", size, &out, err, want)
		}
	}
}
