// Package metadata is the appc metadata service of one pod: facts for the pod's apps
// about themselves, and an identity that they can prove to each other
// (appc, ace.md, "App Container Metadata Service").
//
// The service is plain HTTP/1.1 on a loopback address. The URL holds a random token, so that pods
// in one network namespace do not see each other's data: a request without the token gets 404 Not Found.
//
// http.go implements HTTP in place of net/http, by measurement: net/http makes the
// program a third larger (8.4 to 11.2 MB), which every start of an app maps again, and a
// supervisor 3.0 MB larger while a pod starts and 0.8 MB larger afterwards.
package metadata

import (
	"encoding/json"
	"fmt"

	"kurma.io/stager/plan"
)

// root is the path of everything the service knows, below the token.
const root = "/acMetadata/v1"

// Types of contents, exactly as appc has them.
const (
	jsonType = "application/json"
	textType = "text/plain; charset=us-ascii"
)

// resource answers at one path: a document to GET, or a function of a form to POST.
type resource struct {
	contentType string
	document    []byte
	submit      func(form) (answer, error) // nil for a document
}

// resourcesOf returns the pod's resources by path.
func resourcesOf(pod plan.Metadata, id *identity) (map[string]resource, error) {
	annotations, err := json.Marshal(pod.Annotations)
	if err != nil {
		return nil, fmt.Errorf("encode annotations of pod: %w", err)
	}
	resources := map[string]resource{
		root + "/pod/annotations": {contentType: jsonType, document: annotations},
		root + "/pod/manifest":    {contentType: jsonType, document: pod.Manifest},
		root + "/pod/uuid":        {contentType: textType, document: []byte(pod.UUID)},
		root + "/pod/hmac/sign":   {submit: id.sign},
		root + "/pod/hmac/verify": {submit: id.verify},
	}
	for _, app := range pod.Apps {
		annotations, err := json.Marshal(merge(app.ImageAnnotations, app.Annotations))
		if err != nil {
			return nil, fmt.Errorf("encode annotations of app %q: %w", app.Name, err)
		}
		at := root + "/apps/" + app.Name
		resources[at+"/annotations"] = resource{contentType: jsonType, document: annotations}
		resources[at+"/image/manifest"] = resource{contentType: jsonType, document: app.ImageManifest}
		resources[at+"/image/id"] = resource{contentType: textType, document: []byte(app.ImageID)}
	}
	return resources, nil
}

// merge returns an app's annotations: its image's, in their order, overridden by the
// pod's values, and then the pod's further ones.
func merge(image, app []plan.Annotation) []plan.Annotation {
	if image == nil && app == nil {
		return nil
	}
	merged := make([]plan.Annotation, 0, len(image)+len(app))
	place := map[string]int{}
	for _, list := range [][]plan.Annotation{image, app} {
		for _, a := range list {
			if i, ok := place[a.Name]; ok {
				merged[i].Value = a.Value
				continue
			}
			place[a.Name] = len(merged)
			merged = append(merged, a)
		}
	}
	return merged
}
