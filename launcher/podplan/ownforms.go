package podplan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/appc/spec/schema/types"
)

// withOwnForms returns the text of a pod manifest in which appc's types understand what else the launcher does: named
// volumes, and references to images. Tree is the text's value, which withOwnForms changes; nil for a text that is none.
func (p *Planner) withOwnForms(text []byte, tree any) ([]byte, error) {
	pod, isObject := tree.(map[string]any)
	if !isObject {
		return text, nil // DecodePod has the error
	}
	named, err := p.replaceNamed(pod)
	if err != nil {
		return nil, err
	}
	referred, err := p.replaceReferences(pod)
	if err != nil || !named && !referred {
		return text, err
	}
	return json.Marshal(pod)
}

func objectOf(text []byte) (object map[string]any, ok bool) {
	tree, err := parse(text)
	object, ok = tree.(map[string]any)
	return object, ok && err == nil
}

// listIn returns the list that an object has under a key, in any case.
func listIn(object map[string]any, key string) []any {
	elements, _ := object[keyOf(object, key)].([]any)
	return elements
}

// keyOf returns the key of an object that is the name in any case, or the name.
func keyOf(object map[string]any, name string) string {
	for key := range object {
		if strings.EqualFold(key, name) {
			return key
		}
	}
	return name
}

// References returns the references to images that a pod manifest has: the names of images without an ID and labels.
func References(text []byte) []string {
	pod, _ := objectOf(text)
	var all []string
	for _, element := range listIn(pod, "apps") {
		app, _ := element.(map[string]any)
		if name := reference(imageIn(app)); name != "" {
			all = append(all, name)
		}
	}
	return all
}

func imageIn(app map[string]any) map[string]any {
	image, _ := app[keyOf(app, "image")].(map[string]any)
	return image
}

// reference returns the reference to an image that an object of a pod manifest has; "" for none.
func reference(image map[string]any) string {
	id, _ := image[keyOf(image, "id")].(string)
	if id != "" || len(listIn(image, "labels")) > 0 {
		return ""
	}
	name, _ := image[keyOf(image, "name")].(string)
	return name
}

// replaceReferences puts the IDs of images into a pod manifest for references that are no names of appc's, and for
// those that were obtained from sources. It returns whether there are some.
func (p *Planner) replaceReferences(pod map[string]any) (replaced bool, err error) {
	for _, element := range listIn(pod, "apps") {
		app, _ := element.(map[string]any)
		image := imageIn(app)
		name := reference(image)
		_, invalid := types.NewACIdentifier(name)
		found := cmp.Or(p.Obtained[name], name)
		if name == "" || invalid == nil && found == name {
			continue // DecodePod and readDocument
		}
		of, err := p.Images.Find(found)
		if err != nil {
			return false, fmt.Errorf("app %q: %w", app[keyOf(app, "name")], err)
		}
		if invalid != nil {
			delete(image, keyOf(image, "name"))
		}
		delete(image, keyOf(image, "id"))
		image["id"], replaced = of.ID, true
	}
	return replaced, nil
}
