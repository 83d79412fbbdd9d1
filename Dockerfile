# docker build -t unet3p .                          on NVIDIA's last TensorFlow image
# docker build -t unet3p --build-arg FLAVOUR=pip .  on plain Python, with TensorFlow of PyPI
ARG FROM_IMAGE_NAME=nvcr.io/nvidia/tensorflow:25.02-tf2-py3
ARG FLAVOUR=ngc

# TensorFlow, numpy, CUDA and DALI stay as NVIDIA built them: their versions are constraints, and the
# step fails if one of them changed. Only Keras is upgraded, which NVIDIA's own constraints may forbid.
FROM ${FROM_IMAGE_NAME} AS ngc
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /tmp/unet3p
COPY requirements.txt constraints-ngc.txt ./
RUN shipped() { pip list --format=freeze | grep -iE '^(tensorflow|numpy|protobuf|ml[-_]dtypes|h5py|nvidia|cuda)' | sort; } \
    && unset PIP_CONSTRAINT \
    && shipped > shipped.txt \
    && grep -q '^tensorflow==' shipped.txt \
    && pip install --no-cache-dir 'jupyterlab>=4,<5' -r requirements.txt -c constraints-ngc.txt -c shipped.txt \
    && shipped | diff shipped.txt -

FROM python:3.12-slim-bookworm AS pip
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /tmp/unet3p
COPY requirements.txt requirements-export.txt requirements-dali.txt ./
COPY data_generators/install_dali.sh data_generators/
# DALI's plugin for TensorFlow is compiled here, after which the compiler can go
# hadolint ignore=DL3008
RUN pip install --no-cache-dir 'tensorflow[and-cuda]==2.21.*' 'jupyterlab>=4,<5' -r requirements.txt -r requirements-export.txt \
    && apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && bash data_generators/install_dali.sh \
    && apt-get purge --yes --auto-remove g++ \
    && rm -rf /var/lib/apt/lists/* /root/.cache

FROM ${FLAVOUR}
# The owner of what is mounted at /workspace/unet3p
ARG USER_ID=1000
ENV TF_USE_LEGACY_KERAS=0 KERAS_BACKEND=tensorflow
RUN python -c "import cv2, hydra, keras, nibabel" \
    && { getent passwd "${USER_ID}" || useradd --create-home --uid "${USER_ID}" unet3p; } \
    && install --directory --owner="${USER_ID}" /workspace/unet3p
WORKDIR /workspace/unet3p
COPY --chown=${USER_ID} . .
USER ${USER_ID}
EXPOSE 8888
CMD ["jupyter", "lab", "--no-browser", "--ip=0.0.0.0", "--port=8888"]
