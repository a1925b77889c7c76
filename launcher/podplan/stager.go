package podplan

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
)

// stagerManifest resolves the images of a pod's apps. It returns the manifest
// for the pod's stager, and the layers that the manifest names, each once.
func (p *Planner) stagerManifest(d document, name string,
	config json.RawMessage,
) (*manifest.Manifest, []pods.Layer, error) {
	config, err := withPodVolumes(config, d.pod.Volumes)
	if err != nil {
		return nil, nil, err
	}
	m := &manifest.Manifest{
		KurmaVersion:  kurmaVersion,
		Name:          name,
		Pod:           d.pod,
		Images:        make(map[string]*manifest.Image),
		AppImageOrder: make(map[string][]string),
		StagerConfig:  config,
	}
	var layers []pods.Layer
	for _, app := range d.pod.Apps {
		order, err := p.layersOf(app.Image.ID.String())
		if err != nil {
			return nil, nil, fmt.Errorf("app %q: %w", app.Name, err)
		}
		added, err := addImages(m, app.Name.String(), order)
		if err != nil {
			return nil, nil, err
		}
		layers = append(layers, added...)
	}
	if err := m.Validate(); err != nil { // it names the field, which encode does not
		return nil, nil, err
	}
	d.pod.JSON, err = d.encode()
	return m, layers, err
}

// addImages adds an app's images to the manifest, and returns the layers that it did not have.
func addImages(m *manifest.Manifest, app string, order []*images.Image) (layers []pods.Layer, err error) {
	for _, image := range order {
		m.AppImageOrder[app] = append(m.AppImageOrder[app], image.ID)
		if m.Images[image.ID] != nil {
			continue
		}
		if m.Images[image.ID], err = manifest.DecodeImage(image.Manifest.Raw); err != nil {
			return nil, fmt.Errorf("%s: %w", image.ID, err)
		}
		layers = append(layers, pods.Layer{ID: image.ID, Dir: image.Rootfs()})
	}
	return layers, nil
}

// layersOf returns an image and all that it depends on, the top one first.
func (p *Planner) layersOf(id string) ([]*images.Image, error) {
	top, err := p.Images.Get(id)
	if err != nil {
		return nil, err
	}
	return p.Images.Layers(top)
}

// timeToStop returns how long a stager with the configuration may take to stop. A grace period that is no duration is
// the stager's to refuse.
func timeToStop(config json.RawMessage) time.Duration {
	var text string
	object, err := readConfig(config)
	if err == nil {
		err = json.Unmarshal(object.Take("gracePeriod"), &text)
	}
	if err != nil {
		return stopTimeout
	}
	grace, err := time.ParseDuration(text)
	if err != nil {
		return stopTimeout
	}
	return max(stopTimeout, grace+stopMargin)
}

// stagerConfig returns the configuration's stagerConfig with the policies that the options have. The stager makes a
// working directory of the options, as Docker does, unless the configuration decides that.
func stagerConfig(configured json.RawMessage, o Options) (json.RawMessage, error) {
	if o.ExitPolicy == "" && o.DefaultExit == "" && o.Restart == "" && o.GracePeriod == "" &&
		o.App.WorkingDirectory == "" {
		return configured, nil
	}
	config, err := readConfig(configured)
	if err != nil {
		return nil, err
	}
	exit := o.ExitPolicy
	if key, err := config.Key("exitPolicy"); err == nil && key == "" && exit == "" {
		exit = o.DefaultExit
	}
	changed := false
	for _, policy := range []struct{ key, value string }{
		{"exitPolicy", exit}, {"restart", o.Restart}, {"gracePeriod", o.GracePeriod},
	} {
		if policy.value == "" {
			continue
		}
		if err := config.Set(policy.key, policy.value); err != nil {
			return nil, fmt.Errorf("set %s of defaultStagerConfig: %w", policy.key, err)
		}
		changed = true
	}
	if _, decided := config["makeWorkingDirectory"]; o.App.WorkingDirectory != "" && !decided {
		config["makeWorkingDirectory"], changed = json.RawMessage("true"), true
	}
	if !changed {
		return configured, nil
	}
	return json.Marshal(config)
}

// withPodVolumes returns the stagerConfig of a pod with these volumes: it names the empty ones, whose folders package
// pods makes for the pod.
func withPodVolumes(config json.RawMessage, volumes []types.Volume) (json.RawMessage, error) {
	var made []string
	for _, v := range volumes {
		if v.Kind == "empty" {
			made = append(made, v.Name.String())
		}
	}
	if len(made) == 0 {
		return config, nil
	}
	object, err := readConfig(config)
	if err != nil {
		return nil, err
	}
	if err := object.Set("podVolumes", made); err != nil {
		return nil, fmt.Errorf("set podVolumes of defaultStagerConfig: %w", err)
	}
	return json.Marshal(object)
}

func readConfig(configured json.RawMessage) (strictjson.Object, error) {
	config := make(strictjson.Object)
	if len(configured) > 0 && !strictjson.IsNull(configured) {
		if err := json.Unmarshal(configured, &config); err != nil {
			return nil, fmt.Errorf("read defaultStagerConfig: %w", err)
		}
	}
	return config, nil
}
