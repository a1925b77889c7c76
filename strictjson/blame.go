package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// blame finds the innermost field of data that alone does not decode into its
// place in a t: a type with an UnmarshalJSON of its own says what it refuses, not where
// that stands.
func blame(path string, data []byte, t reflect.Type, err error) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, part := range parts(path, data, t) {
		if err := json.Unmarshal(part.data, reflect.New(part.t).Interface()); err != nil {
			return blame(part.path, part.data, part.t, err)
		}
	}
	reason := OneLine(err.Error())
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		reason = "must be " + describe(wrong.Type)
	}
	if path == "" {
		path = "the document"
	}
	return fmt.Errorf("%s: %s: %s", path, Show(data), reason)
}

// checkFields refuses a field of a struct in t that data, which decodes into a t, has under two keys: encoding/json
// takes the later one without a word.
func checkFields(path string, data []byte, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	keys := make(map[string]string) // by field
	for _, part := range parts(path, data, t) {
		if first, ok := keys[part.field]; ok {
			twice := &DuplicateKeyError{part.field, first, part.key}
			if path == "" {
				return twice
			}
			return fmt.Errorf("%s.%w", path, twice)
		}
		if part.field != "" {
			keys[part.field] = part.key
		}
		if err := checkFields(part.path, part.data, part.t); err != nil {
			return err
		}
	}
	return nil
}

type part struct {
	path string
	data []byte
	t    reflect.Type

	field, key string // of a struct: the field's name in JSON, and as it is written; "" otherwise
}

// parts returns the fields or elements of data, where both it and t have such.
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
				name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				out = append(out, part{Join(path, key), fields[key], field.Type, name, key})
			}
		}
	case reflect.Slice:
		var elems []json.RawMessage
		if json.Unmarshal(data, &elems) != nil {
			return nil
		}
		for i, elem := range elems {
			out = append(out, part{path: fmt.Sprintf("%s[%d]", path, i), data: elem, t: t.Elem()})
		}
	case reflect.Map:
		var values map[string]json.RawMessage
		if json.Unmarshal(data, &values) != nil {
			return nil
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			out = append(out, part{path: Join(path, key), data: values[key], t: t.Elem()})
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
