package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// unmarshal decodes data into v. An error is one line that names the field,
// as a path that begins with the given one, and its value.
func unmarshal(path string, data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("not a JSON document: byte %d of %d: %w", syntax.Offset, len(data), syntax)
	}
	return blame(path, data, reflect.TypeOf(v).Elem(), err)
}

// blame finds the innermost field of data that alone does not decode into its
// place in a t: appc's types say what they dislike, not where it stands.
func blame(path string, data []byte, t reflect.Type, err error) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, part := range parts(path, data, t) {
		if err := json.Unmarshal(part.data, reflect.New(part.t).Interface()); err != nil {
			return blame(part.path, part.data, part.t, err)
		}
	}
	reason := oneLine(err.Error())
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		reason = "must be " + describe(wrong.Type)
	}
	if path == "" {
		path = "the document"
	}
	return fmt.Errorf("%s: %s: %s", path, abridge(data), reason)
}

type part struct {
	path string
	data []byte
	t    reflect.Type
}

// parts gives what data consists of, where both it and t have parts.
func parts(path string, data []byte, t reflect.Type) []part {
	var out []part
	switch t.Kind() {
	case reflect.Struct:
		var fields map[string]json.RawMessage
		if json.Unmarshal(data, &fields) != nil {
			return nil
		}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if field, ok := fieldOf(t, key); ok {
				out = append(out, part{join(path, key), fields[key], field.Type})
			}
		}
	case reflect.Slice:
		var elems []json.RawMessage
		if json.Unmarshal(data, &elems) != nil {
			return nil
		}
		for i, elem := range elems {
			out = append(out, part{fmt.Sprintf("%s[%d]", path, i), elem, t.Elem()})
		}
	case reflect.Map:
		var entries map[string]json.RawMessage
		if json.Unmarshal(data, &entries) != nil {
			return nil
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			out = append(out, part{join(path, key), entries[key], t.Elem()})
		}
	}
	return out
}

// fieldOf finds the exported field of the struct t that has the JSON key.
func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.IsExported() && strings.EqualFold(name, key) {
			return field, true
		}
	}
	return reflect.StructField{}, false
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

func join(path, key string) string {
	if !plain(key) {
		return fmt.Sprintf("%s[%s]", path, quote(key))
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// plain says whether a path can show the key without quotes.
func plain(key string) bool {
	odd := func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	return key != "" && len(key) <= maxShown && !strings.ContainsFunc(key, odd)
}

func imagePath(id string) string { return join("images", id) }

// maxShown is how much of a value an error shows, in bytes: an image ID whole.
const maxShown = 160

// abridge shows a JSON value on one line.
func abridge(data []byte) string {
	s := oneLine(strings.ToValidUTF8(string(data[:min(len(data), 4*maxShown)]), "?"))
	if len(s) > maxShown || len(data) > 4*maxShown {
		return strings.ToValidUTF8(s[:min(len(s), maxShown)], "") + "…"
	}
	return s
}

// quote shows a string on one line.
func quote(s string) string {
	if len(s) > maxShown {
		return fmt.Sprintf("%q…", s[:maxShown])
	}
	return fmt.Sprintf("%q", s)
}

// oneLine turns runs of white space and control characters into one space.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 }), " ")
}
