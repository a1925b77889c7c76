package strictjson

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Object is a JSON object that finds its fields by their keys in any case, as
// encoding/json finds them. Fields that Set does not change stay as they were written.
// encoding/json itself decodes into an Object; if a key is given twice in the same
// case, it keeps the last value.
type Object map[string]json.RawMessage

// Key returns the key under which the object has the field, "" if it has not.
// A field that it has more than once is a *DuplicateKeyError.
func (o Object) Key(name string) (string, error) {
	found := ""
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if !strings.EqualFold(key, name) {
			continue
		}
		if found != "" {
			return "", &DuplicateKeyError{Join("", name), found, key}
		}
		found = key
	}
	return found, nil
}

// Take removes the field and returns its value, nil if the object has no such
// field. If the object has the field more than once, Take takes any: see CheckKeys.
func (o Object) Take(name string) json.RawMessage {
	for key, value := range o {
		if strings.EqualFold(key, name) {
			delete(o, key)
			return value
		}
	}
	return nil
}

// Set puts value in place of the field, in whatever case its key is, or adds
// it. An error begins with the field's name.
func (o Object) Set(name string, value any) error {
	key, err := o.Key(name)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: %w", Join("", name), err)
	}
	delete(o, key)
	o[name] = raw
	return nil
}

// CheckKeys returns a *DuplicateKeyError if two keys differ in case only. Its path is the later of
// the keys in byte order.
func (o Object) CheckKeys() error {
	keys := make(map[string]string, len(o)) // by their folded form
	for _, key := range slices.Sorted(maps.Keys(o)) {
		folded := strings.Map(fold, key)
		if first, ok := keys[folded]; ok {
			return &DuplicateKeyError{Join("", key), first, key}
		}
		keys[folded] = key
	}
	return nil
}

// fold returns the same rune for all runes that strings.EqualFold, and so
// encoding/json, takes for equal: the smallest of them.
func fold(r rune) rune {
	smallest := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		smallest = min(smallest, other)
	}
	return smallest
}
