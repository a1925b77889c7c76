package podplan

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
)

// keys are the keys that an object of a manifest can have, with the keys of their objects,
// or of the objects of their lists; nil for anything else. Keys are found in any case.
type keys map[string]keys

// podKeys are the keys of a pod manifest (appc, pods.md).
func podKeys() keys {
	pair := keys{"name": nil, "value": nil}
	port := keys{"name": nil, "protocol": nil, "port": nil, "count": nil, "socketActivated": nil}
	volume := keys{
		"name": nil, "kind": nil, "source": nil, "readOnly": nil, "recursive": nil, "mode": nil, "uid": nil,
		"gid": nil,
	}
	section := keys{
		"exec": nil, "eventHandlers": {"name": nil, "exec": nil}, "user": nil, "group": nil, "supplementaryGIDs": nil,
		"workingDirectory": nil, "environment": pair, "mountPoints": {"name": nil, "path": nil, "readOnly": nil},
		"ports":     port,
		"isolators": pair, "userAnnotations": nil, "userLabels": nil,
	}
	app := keys{
		"name": nil, "image": {"id": nil, "name": nil, "labels": pair}, "app": section, "readOnlyRootFS": nil,
		"mounts": {"volume": nil, "path": nil, "appVolume": volume}, "annotations": pair,
	}
	return keys{
		"acVersion": nil, "acKind": nil, "apps": app, "volumes": volume, "isolators": pair, "annotations": pair,
		"ports": {"name": nil, "hostPort": nil, "hostIP": nil, "podPort": port}, "userAnnotations": nil, "userLabels": nil,
	}
}

// unknownKey is a key of a document that the launcher does not know.
type unknownKey struct {
	place []any // the names and indexes that lead to the object that has the key
	key   string
	value any
	known keys // that the object can have
}

// unknownKeys returns the unknown keys of a document, in the order of their places.
func unknownKeys(document []byte, known keys) []unknownKey {
	value, err := parse(document)
	if err != nil {
		return nil // the error is reported where the document is read
	}
	return findUnknown(nil, value, known)
}

// findUnknown looks into objects and lists with known keys.
func findUnknown(place []any, value any, known keys) (all []unknownKey) {
	if known == nil {
		return nil
	}
	switch v := value.(type) {
	case []any:
		for i, element := range v {
			all = append(all, findUnknown(append(slices.Clone(place), i), element, known)...)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			name, ok := known.find(key)
			if !ok {
				all = append(all, unknownKey{place, key, v[key], known})
				continue
			}
			all = append(all, findUnknown(append(slices.Clone(place), name), v[key], known[name])...)
		}
	}
	return all
}

// find returns what is at a place of a document, nil for nothing.
func find(value any, place []any) any {
	for _, step := range place {
		switch at := step.(type) {
		case string:
			object, _ := value.(map[string]any)
			value = object[at]
		case int:
			list, _ := value.([]any)
			if at >= len(list) {
				return nil
			}
			value = list[at]
		}
	}
	return value
}

// unknownWarnings returns a warning for each unknown key: they are probably misspelt. Name is the document's.
func unknownWarnings(name string, unknown []unknownKey) []string {
	var all []string
	for _, u := range unknown {
		text := fmt.Sprintf("%s: unknown key %q", name, u.key)
		if len(u.place) > 0 {
			text += " in " + placeText(u.place)
		}
		text += ", ignored"
		if near, differ := nearest(u.key, maps.Keys(u.known)); differ <= maxTypos {
			text += fmt.Sprintf("; did you mean %q?", near)
		}
		all = append(all, text)
	}
	return all
}

// placeText is a place for a person: apps[0].image.
func placeText(place []any) string {
	var text strings.Builder
	for i, step := range place {
		switch at := step.(type) {
		case string:
			if i > 0 {
				text.WriteByte('.')
			}
			text.WriteString(at)
		case int:
			fmt.Fprintf(&text, "[%d]", at)
		}
	}
	return text.String()
}

func (k keys) find(key string) (string, bool) {
	for name := range k {
		if strings.EqualFold(name, key) {
			return name, true
		}
	}
	return "", false
}

// maxTypos is in how many characters a misspelt word may differ from the one that is meant.
const maxTypos = 2

// nearest returns the name that differs least from the word, in any case, and in how many characters.
func nearest(word string, names iter.Seq[string]) (best string, least int) {
	least = math.MaxInt
	for _, name := range slices.Sorted(names) {
		if d := distance(strings.ToLower(word), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	return best, least
}

// distance is the number of characters to insert, delete, replace or swap with the next one (optimal string alignment).
func distance(a, b string) int {
	var before, last, row []int // of the table; element i, j is the distance of a[:i] and b[:j]
	for i := range len(a) + 1 {
		before, last, row = last, row, make([]int, len(b)+1)
		for j := range row {
			switch {
			case i == 0 || j == 0:
				row[j] = i + j
			case a[i-1] == b[j-1]:
				row[j] = last[j-1]
			default:
				row[j] = 1 + min(last[j-1], last[j], row[j-1])
				if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
					row[j] = min(row[j], 1+before[j-2])
				}
			}
		}
	}
	return row[len(b)]
}
