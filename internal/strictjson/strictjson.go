// Package strictjson reads JSON that an administrator or another program
// wrote, and refuses what encoding/json accepts: a field given twice (in any
// case, since encoding/json matches keys in any case and takes the last), an
// unknown key, text after the document. Its errors are one line, name the field by
// its path, such as pod.apps[0].name, and truncate a long value.
//
//	Decode      a whole document into a struct, every rule above
//	Unmarshal   a part of a larger document: unknown keys pass, each error names the path
//	Object      an object, for looking up keys one by one; the rest stays unchanged
//
// It needs only the standard library.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"
)

var (
	// ErrEmpty is Decode's error for a text of nothing but white space.
	ErrEmpty = errors.New("the document is empty")

	// ErrTrailing is Decode's error for text after the document.
	ErrTrailing = errors.New("more follows after the JSON object")
)

// DuplicateKeyError reports two keys of one object that encoding/json would
// take for the same one. Its text begins with the path of the field.
type DuplicateKeyError struct {
	Path          string // of the field, as Join returns it
	First, Second string // as written
}

// Error implements error.
func (e *DuplicateKeyError) Error() string {
	return fmt.Sprintf("%s: given twice, as %s and %s", e.Path, Quote(e.First), Quote(e.Second))
}

// Decode decodes text, which must be one JSON document and nothing else, into the struct that v points to. It refuses
// unknown keys, and a key that is given twice in any struct or map. The error is ErrEmpty, ErrTrailing, a
// *DuplicateKeyError, or one line that says where the text is no JSON, or which field does not fit. After an error *v
// may be partly set.
func Decode(text []byte, v any) error {
	if err := checkText("", text); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return ErrEmpty
		}
		return explain("", text, reflect.TypeOf(v).Elem(), err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return ErrTrailing
	}
	if !mayRepeat(text) {
		return nil
	}
	return checkKeys("", text, reflect.TypeOf(v).Elem())
}

// Unmarshal decodes data into v as encoding/json does, and refuses a duplicate key in any struct or map. An error is
// one line with the position of a syntax error, or with the path of the innermost wrong field and its value, or its
// two keys. The path begins with the given path ("" for a whole document). After an error *v may be partly set.
func Unmarshal(path string, data []byte, v any) error {
	if err := checkText(path, data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return explain(path, data, reflect.TypeOf(v).Elem(), err)
	}
	if !mayRepeat(data) {
		return nil
	}
	return checkKeys(path, data, reflect.TypeOf(v).Elem())
}

// checkText refuses what is not UTF-8 (RFC 8259, section 8.1): encoding/json takes each such byte for U+FFFD, so a path
// or a password would become another one.
func checkText(path string, data []byte) error {
	if utf8.Valid(data) {
		return nil
	}
	line, rest := 1, data
	for {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size <= 1 {
			break
		}
		if r == '\n' {
			line++
		}
		rest = rest[size:]
	}
	text := fmt.Sprintf("not UTF-8 in line %d", line)
	if path != "" {
		text = path + ": " + text
	}
	return errors.New(text)
}

// IsNull reports whether raw is null, or empty, as a field is that was absent.
func IsNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}
