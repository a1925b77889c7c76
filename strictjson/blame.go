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

type part struct {
	path string
	data []byte
	t    reflect.Type
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
				out = append(out, part{Join(path, key), fields[key], field.Type})
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
		var values map[string]json.RawMessage
		if json.Unmarshal(data, &values) != nil {
			return nil
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			out = append(out, part{Join(path, key), values[key], t.Elem()})
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
