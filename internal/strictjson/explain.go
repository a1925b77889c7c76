package strictjson

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// explain says why encoding/json did not decode data into a t.
func explain(path string, data []byte, t reflect.Type, err error) error {
	if bytes.HasPrefix(data, []byte("\ufeff")) {
		return errors.New("not a JSON document: begins with a byte order mark (RFC 8259, section 8.1)")
	}
	// A decoder does not say where data ends too early.
	if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(data, new(json.RawMessage))); ok {
		before := data[:max(syntax.Offset-1, 0)] // the offset counts the character that is wrong
		begin := bytes.LastIndexByte(before, '\n') + 1
		line, column := bytes.Count(before, []byte("\n"))+1, utf8.RuneCount(before[begin:])+1
		return fmt.Errorf("not a JSON document: line %d, column %d: %w", line, column, syntax)
	}
	if unknown, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("unknown key %s", unknown)
	}
	return explainInnermost(path, data, t, err)
}

// explainInnermost finds the innermost field of data that alone does not decode into its
// place in a t: the error of a type with its own UnmarshalJSON has no path to the refused value.
func explainInnermost(path string, data []byte, t reflect.Type, err error) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, part := range parts(path, data, t) {
		if err := json.Unmarshal(part.data, reflect.New(part.t).Interface()); err != nil {
			return explainInnermost(part.path, part.data, part.t, err)
		}
	}
	reason := oneLine(err.Error())
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		reason = "must be " + describe(wrong.Type)
	}
	if path == "" {
		path = "the document"
	}
	return fmt.Errorf("%s: %s: %s", path, Show(data), reason)
}

// mayRepeat reports whether an object in data, which is JSON, may have two keys that differ in nothing but case: it
// takes two keys for the same one rather than decode them. checkKeys, which is certain, takes twenty times as long:
// of a pod of 50 apps `launcher validate` takes 24 ms of CPU time, and 34 without mayRepeat.
func mayRepeat(data []byte) bool {
	type level struct {
		keys  [][]byte // nil for a list
		atKey bool     // the next string is a key
	}
	var levels []level
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{':
			levels = append(levels, level{[][]byte{}, true})
		case '[':
			levels = append(levels, level{})
		case '}', ']':
			levels = levels[:len(levels)-1]
		case ',':
			last := &levels[len(levels)-1]
			last.atKey = last.keys != nil
		case '"':
			begin := i + 1
			for i = begin; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			if len(levels) == 0 || !levels[len(levels)-1].atKey {
				continue
			}
			last := &levels[len(levels)-1]
			key := data[begin:i]
			isKey := func(k []byte) bool { return bytes.EqualFold(k, key) }
			if len(last.keys) == maxSimpleKeys || !isSimple(key) || slices.ContainsFunc(last.keys, isKey) {
				return true
			}
			last.keys, last.atKey = append(last.keys, key), false
		}
	}
	return false
}

// maxSimpleKeys is how many keys of an object mayRepeat compares with each other.
const maxSimpleKeys = 64

// isSimple reports whether a key is written without escapes, in ASCII.
func isSimple(key []byte) bool {
	return !slices.ContainsFunc(key, func(b byte) bool { return b == '\\' || b >= utf8.RuneSelf })
}

// checkKeys refuses a key that data, which decodes into a t, has twice: encoding/json takes the later one without a
// word. The keys of a field of a struct are the same in any case, those of a map are not. What stays JSON in a t is
// not looked at, nor are keys that no field has. So the depth of t, not that of data, is how often a byte is read.
func checkKeys(path string, data []byte, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice && !hasParts(t.Elem()) {
		return nil // most lists are of strings
	}
	keys := make(map[string]string) // as written, by name
	for _, part := range parts(path, data, t) {
		if first, ok := keys[part.name]; ok {
			return &DuplicateKeyError{Join(path, part.name), first, part.key}
		}
		keys[part.name] = part.key
		if err := checkKeys(part.path, part.data, part.t); err != nil {
			return err
		}
	}
	return nil
}

type part struct {
	path string
	data []byte
	t    reflect.Type

	name string // of a struct's field, in JSON; a map's key; an element's index
	key  string // as written
}

// parts returns the fields or elements of data, where both it and t have such, in the order of data. A type with an
// UnmarshalJSON of its own is taken to read the fields that it has.
func parts(path string, data []byte, t reflect.Type) []part {
	var all []part
	if !hasParts(t) || !bytes.ContainsAny(data[:min(len(data), 1)], "{[ \t\r\n") {
		return nil // no object and no list
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	begin, _ := decoder.Token()
	switch {
	case begin == json.Delim('{') && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map):
		for decoder.More() {
			token, _ := decoder.Token()
			key, isKey := token.(string)
			var value json.RawMessage
			if !isKey || decoder.Decode(&value) != nil {
				return nil
			}
			p := part{path: Join(path, key), data: value, name: key, key: key}
			if t.Kind() == reflect.Map {
				p.t = t.Elem()
			} else if field, ok := fieldOf(t, key); ok {
				p.name, p.t = nameOf(field), field.Type
			} else {
				continue
			}
			all = append(all, p)
		}
	case begin == json.Delim('[') && t.Kind() == reflect.Slice:
		for i := 0; decoder.More(); i++ {
			var element json.RawMessage
			if decoder.Decode(&element) != nil {
				return nil
			}
			index := fmt.Sprintf("[%d]", i)
			all = append(all, part{path: path + index, data: element, t: t.Elem(), name: index})
		}
	}
	return all
}

// hasParts reports whether JSON that decodes into a t can have fields or elements.
func hasParts(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map || t.Kind() == reflect.Slice
}

// fieldOf finds the exported field of the struct t that has the JSON key.
func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		field := t.Field(i)
		if field.IsExported() && field.Tag.Get("json") != "-" && strings.EqualFold(nameOf(field), key) {
			return field, true
		}
	}
	return reflect.StructField{}, false
}

// nameOf returns the name of a struct's field in JSON.
func nameOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return cmp.Or(name, field.Name)
}

func describe(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number, not negative"
	default:
		return "a whole number"
	}
}
