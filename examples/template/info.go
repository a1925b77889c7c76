package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/plan"
)

const (
	infoKey    = "infoFile" // of stagerConfig: the path, in each app's root, of a file with the pod's info; absent for none
	infoCallIn = "info"     // prints the info; build.sh makes the link to the program
)

// info is what an app or a caller may know of the pod.
type info struct {
	Pod  string   `json:"pod"`
	Apps []string `json:"apps"`
}

// decideInfo reads the key.
func decideInfo(value json.RawMessage) (plan.Decision, error) {
	var file string
	if json.Unmarshal(value, &file) != nil || !path.IsAbs(file) {
		return plan.Decision{}, errors.New("must be an absolute path")
	}
	return plan.Decision{Value: file}, nil
}

// writeInfo is a step: it writes the file into the root of each app.
func writeInfo(_ context.Context, pod *boot.Pod) error {
	file, wanted := pod.Plan.Config.Values[infoKey].(string)
	if !wanted {
		return nil
	}
	text, err := json.Marshal(infoOf(pod))
	if err != nil {
		return fmt.Errorf("write info: %w", err)
	}
	for _, app := range pod.Plan.Apps {
		if err := pod.WriteFile(app.Name, file, append(text, '\n'), 0o444); err != nil {
			return fmt.Errorf("write info: %w", err)
		}
	}
	return nil
}

// serveInfo is the supervisor's side of the call-in.
func serveInfo(pod *boot.Pod) callins.Handler {
	return callins.ServeDocument(func(_ context.Context, call *callins.Call) (any, error) {
		if len(call.Args()) > 0 {
			return nil, errors.New("want no arguments")
		}
		return infoOf(pod), nil
	})
}

func infoOf(pod *boot.Pod) info {
	i := info{Pod: pod.Manifest.Name}
	for _, app := range pod.Plan.Apps {
		i.Apps = append(i.Apps, app.Name)
	}
	return i
}
