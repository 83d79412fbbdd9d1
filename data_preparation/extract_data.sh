#!/usr/bin/env bash
# data/Training_Batch{1,2}.zip → data/Training Batch {1,2}/*.nii
# Usage, from the project's folder: bash data_preparation/extract_data.sh

set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lits_folder.sh"

temporary="$(mktemp -d -- "$data/.extract.XXXXXX")"
trap 'rm -rf -- "$temporary"' EXIT

found=0
for batch in 1 2; do
    folder="$data/Training Batch $batch"
    mapfile -d "" zips < <(zips_of_batch "$batch")
    if [[ -e "$folder" || -L "$folder" ]]; then
        echo "$folder is there already; delete_extracted_scans_data.sh removes it"
        found=1
    elif ((${#zips[@]} > 1)); then
        fail "found ${zips[*]}; keep one zip file for batch $batch"
    elif ((${#zips[@]} == 0)); then
        echo "Note: no zip file of batch $batch (such as Training_Batch$batch.zip) in $data" >&2
    else
        mkdir -- "$temporary/$batch"
        python3 "$project/data_preparation/unzip_scans.py" "${zips[0]}" "$temporary/$batch"
        mv -T -- "$temporary/$batch" "$folder"
        echo "Extracted $folder"
        found=1
    fi
done
((found)) || fail "nothing to extract; put the LiTS zip files into $data"
