package podplan

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/manifest"

	"github.com/appc/spec/schema"
)

// readPod checks a pod manifest and edits it, see editPod. Volumes are the names of
// the volumes that the manifest has.
func (p *Planner) readPod(file string, document []byte, o Options) (edited []byte, volumes []string, err error) {
	if !utf8.Valid(document) { // JSON's decoder would put other characters into its paths
		return nil, nil, fmt.Errorf("read pod manifest %s: it is not UTF-8", file)
	}
	pod, err := manifest.DecodePod(document)
	if err != nil {
		return nil, nil, fmt.Errorf("read pod manifest %s: %w", file, err)
	}
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name.String())
	}
	ids := make([]string, len(pod.Apps))
	for i, app := range pod.Apps {
		image, err := p.runtimeImage(app.Image)
		if err != nil {
			return nil, nil, fmt.Errorf("pod manifest %s: app %q: %w", file, app.Name, err)
		}
		ids[i] = image.ID
	}
	edited, err = editPod(document, ids, o)
	return edited, volumes, err
}

// runtimeImage finds the image that a pod's app names, by ID or by name and labels.
func (p *Planner) runtimeImage(want schema.RuntimeImage) (*images.Image, error) {
	if !want.ID.Empty() {
		return p.Images.Find(want.ID.String())
	}
	if want.Name == nil {
		return nil, errors.New("image: neither ID nor name")
	}
	labels := make([]images.NameValue, 0, len(want.Labels))
	for _, l := range want.Labels {
		labels = append(labels, images.NameValue{Name: l.Name.String(), Value: l.Value})
	}
	return p.Images.FindLabelled(want.Name.String(), labels)
}
