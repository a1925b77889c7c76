package podplan

import (
	"encoding/json"
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
	volume := keys{"name": nil, "kind": nil, "source": nil, "readOnly": nil, "recursive": nil, "mode": nil, "uid": nil, "gid": nil}
	section := keys{
		"exec": nil, "eventHandlers": {"name": nil, "exec": nil}, "user": nil, "group": nil, "supplementaryGIDs": nil,
		"workingDirectory": nil, "environment": pair, "mountPoints": {"name": nil, "path": nil, "readOnly": nil}, "ports": port,
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

// unknownKeys warns of the keys of a document that the launcher does not know: they are probably misspelt. Name is
// the document's, for the warnings.
func unknownKeys(name string, document []byte, known keys) []string {
	var value any
	if json.Unmarshal(document, &value) != nil {
		return nil // the error is reported where the document is read
	}
	var all []string
	findUnknown("", value, known, func(path, key string, known keys) {
		text := fmt.Sprintf("%s: unknown key %q%s, ignored", name, key, path)
		if near, differ := nearest(key, maps.Keys(known)); differ <= maxTypos {
			text += fmt.Sprintf("; did you mean %q?", near)
		}
		all = append(all, text)
	})
	return all
}

// findUnknown looks into objects and lists whose keys are known, and calls report with the path of the
// object that has an unknown key.
func findUnknown(path string, value any, known keys, report func(path, key string, known keys)) {
	if known == nil {
		return
	}
	switch v := value.(type) {
	case []any:
		for i, element := range v {
			findUnknown(fmt.Sprintf("%s[%d]", path, i), element, known, report)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := ""
			if path != "" {
				at = " in " + path
			}
			name, ok := known.find(key)
			if !ok {
				report(at, key, known)
				continue
			}
			findUnknown(strings.TrimPrefix(path+"."+name, "."), v[key], known[name], report)
		}
	}
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
	var before, last, row []int // of the table, whose element i, j is the distance of a[:i] and b[:j]
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
